"""A small sweep, an executor for it, and what its runs leave behind."""

from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

from prunus import Ticket
from prunus.sweeps import Experiment

TASK = "digits/digits_convnet"
SMALL = {
    "recipe": {"epochs": 2, "batch_size": 25},
    "data": {"train_images": 100},
    "engine": {"accelerator": "cpu"},
    "rounds": 2,
    "rewind_epoch": 1,
}
TWELVE = {
    "name": "twelve",
    "tasks": TASK,
    "settings": SMALL,
    "rows": [
        {"method": "cs", "grid": {"method.mask_init": [-0.02, 0.0, 0.02]}, "then": "retrain"},
        {"command": "prune", "method": "gmp", "grid": {"method.target_density": [0.1, 0.3]}},
    ],
}
"""A dense run, three searches with two tickets each, and two prunings."""


def experiment(content=TWELVE, **changes):
    return Experiment.parse({**content, **changes})


def long_runs(epochs=40, seeds=(0, 1)):
    """Dense runs only, each long enough to be hit in the middle."""
    settings = {**SMALL, "recipe": {"epochs": epochs, "batch_size": 25}}
    return {"name": "long", "tasks": TASK, "seeds": list(seeds), "settings": settings,
            "dense": False, "rows": [{"command": "train"}]}  # fmt: skip


class Here(Executor):
    """Calls functions at once, in this process, and remembers them."""

    def __init__(self):
        self.calls = []

    def submit(self, fn, /, *args, **kwargs):
        self.calls.append(args)
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def content(folder: Path):
    """What the runs below a folder computed, by name, without times and paths."""
    found = {}
    for run in sorted(path.parent for path in Path(folder).glob("*/results.json")):
        for name in ("results.json", "metrics.jsonl"):
            found[run.name, name] = (run / name).read_bytes()
        for path in (run / "tickets").iterdir():
            ticket = Ticket.load(path)
            manifest = replace(ticket.manifest, created="")
            same = Ticket(ticket.mask, ticket.weights, manifest, whole=ticket.whole)
            found[run.name, path.name] = same.content_hash
    return found
