"""Runs the commands whose output the documentation shows, and keeps it in results/outputs.json.

The commands of a page run one after the other in an empty folder, as a reader would type them, with
one thread. tools/render.py puts what they printed into the pages. Takes some minutes:
`python tools/outputs.py`, or with names of outputs, only the commands of their pages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from prunus.files import write_atomically
from prunus.runs.origin import here

ROOT = Path(__file__).parent.parent
FILE = ROOT / "results" / "outputs.json"
DIGITS = "--task digits/digits_convnet"
SEARCHED = "runs/digits-digits_convnet-cs-search-4e13410dc6/tickets/round-2.safetensors"
SHORT = "runs/digits-digits_convnet-cs-search-6ec3bd9985/tickets/round-1.safetensors"

PAGES: dict[str, dict[str, str]] = {
    "running": {
        "train": f"train {DIGITS}",
        "stopped": f"search {DIGITS} --mask-init -0.05 --rounds 3",
        "resumed": f"search {DIGITS} --mask-init -0.05 --rounds 3",
        "retrain": f"retrain {SEARCHED}",
        "transfer": f"retrain {SEARCHED} --task parity:parity",
        "prune": f"prune {DIGITS} --mask-init -0.05",
        "inspect": f"inspect {SEARCHED}",
        "misspelt": f"search {DIGITS} --set method.mask_int=-0.05",
        "devices": f"train {DIGITS} --devices 2 --batch-size 50 --epochs 3",
        "diverged": "train --task digits/lenet --epochs 3 --set recipe.lr=100 --seed 4",
        "missing": "train --task cifar10/resnet20",
    },
    "running-text": {
        "text": "prune --task text/gpt-char --target-density 0.1 --set data.train_images=2000",
    },
    "tickets": {
        "short": f"search {DIGITS} --mask-init -0.05 --rounds 1 --epochs 3",
        "inspect-short": f"inspect {SHORT}",
    },
}
"""The commands of each page, in their order, by the names of their outputs."""
INTERRUPTED = {"stopped": "round 2  epoch  1/12"}
"""Commands that somebody stops with Ctrl-C, once they have printed this."""


def task_of_page() -> str:
    """The first block of Python of docs/running.md, which it says is `parity.py`."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "running.md").read_text(), re.DOTALL)
    assert found is not None and "def parity(" in found[1]
    return found[1]


def printed(name: str, command: str, folder: Path) -> str:
    """What a command prints in a folder, whatever its exit code."""
    words = [sys.executable, "-m", "prunus", *shlex.split(command)]
    ours = {
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    lines = []
    with subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **ours},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip() and line.rstrip())
            print(line, end="", flush=True)
            if name in INTERRUPTED and line.startswith(INTERRUPTED[name]):
                process.send_signal(signal.SIGINT)
                lines.append("^C")
    return shortened("\n".join(lines).strip())


def shortened(text: str) -> str:
    """Of many epochs in a row, the first two and the last."""
    epoch = r"(?:.*  epoch +\d+/\d+  .*\n)"
    return re.sub(rf"^({epoch}{{2}}){epoch}{{2,}}({epoch})", r"\1...\n\2", text, flags=re.MULTILINE)


def outputs_of(commands: Mapping[str, str]) -> dict[str, dict[str, str | None]]:
    """What each of the commands of a page prints, in a folder of their own."""
    with TemporaryDirectory() as place:
        (Path(place) / "parity.py").write_text(task_of_page())
        made = {"machine": here().machine, "commit": here().commit}
        return {
            name: {"command": command, "output": printed(name, command, Path(place)), **made}
            for name, command in commands.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of outputs; all unless given")
    names = parser.parse_args().names
    for commands in PAGES.values():
        if not names or not commands.keys().isdisjoint(names):
            found = json.loads(FILE.read_text()) if FILE.exists() else {}
            write_atomically(FILE, json.dumps(found | outputs_of(commands), indent=1) + "\n")


if __name__ == "__main__":
    main()
