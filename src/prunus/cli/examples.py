"""Two examples for the help of each command: what to type, and what it does."""

EXAMPLES: dict[str, dict[str, str]] = {
    "train": {
        "prunus train --task digits/digits_convnet": "a small network, in seconds",
        "prunus train --task cifar10/resnet20 --download --epochs 20": "fetches its data first",
    },
    "search": {
        "prunus search --task digits/digits_convnet --target-density 10%": "one ticket",
        "prunus search --task cifar10/resnet20 --mask-init -0.1 --rounds 5": "the paper's way",
    },
    "prune": {
        "prunus prune --task digits/digits_convnet --target-density 5%": "with cs",
        "prunus prune --task cifar10/vgg16 --method gmp --target-density 2%": "with another method",
    },
    "retrain": {
        "prunus retrain runs/RUN/tickets/round-1.safetensors": "from its early weights",
        "prunus retrain ticket.safetensors --task cifar100/resnet20": "on another task",
    },
    "sweep": {
        "prunus sweep experiment.yaml --dry-run": "lists the runs, and does nothing",
        "prunus sweep comparison --scale smoke --workers 2": "one that comes with Prunus",
    },
    "reproduce": {
        "prunus reproduce --list": "what there is, and what it costs",
        "prunus reproduce table1 --scale short": "an hour on a laptop",
    },
    "report": {
        "prunus report runs": "all runs below a folder",
        "prunus report runs/table1 --watch --csv table.csv": "while a sweep runs",
    },
    "deploy": {
        "prunus deploy runs/RUN --out model.prunus": "what train, prune or retrain made",
        "prunus deploy ticket.safetensors --format onnx": "for ONNX Runtime",
    },
    "inspect": {
        "prunus inspect ticket.safetensors": "what it keeps of each layer",
        "prunus inspect ticket.safetensors --json": "for a program",
    },
    "demo": {
        "prunus demo": "about two minutes",
        "prunus demo --scale smoke": "a few seconds, to see that it works",
    },
    "tasks": {
        "prunus tasks": "data sets, networks and recipes",
        "prunus tasks --json": "for a program",
    },
    "methods": {
        "prunus methods": "all of them, a line each",
        "prunus methods cs": "the settings of one, with their defaults",
    },
    "runs": {
        "prunus runs": "what is in runs, how far, how good",
        "prunus runs runs/table1 --json": "for a program",
    },
}


def epilogue(command: str) -> str:
    """The examples as they stand below the help of a command, in Markdown."""
    lines = [f"- {does}: `{typed}`" for typed, does in EXAMPLES[command].items()]
    return "\n".join(["Examples:", "", *lines])
