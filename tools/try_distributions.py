"""Installs what is in dist/ by name, in clean environments, and does what README says, outside of
the clone: `make dist-test`.

The commands are those of README, in its order, made short: other data, and fewer epochs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORT = (
    # what README has, and what is run instead
    (r"cifar10/\w+", "digits/digits_convnet"),
    (r"^prunus (train|search|prune) .*", r"\g<0> --epochs 2 --set data.train_images=100"),
    (r"--rounds 5", "--rounds 2 --set rewind_epoch=1"),
    (r"runs/\.\.\./tickets/round-5", "runs/*-cs-search-*/tickets/round-2"),
    (r"deploy  runs/\.\.\.", "deploy  runs/*-gmp-prune-*"),
    (r"--scale short", "--scale smoke"),
)
EXPERIMENT = """
name: short
tasks: digits/digits_convnet
settings: {recipe: {epochs: 2}, data: {train_images: 100}}
rows:
  - {command: prune, method: {name: gmp, target_density: 0.1}}
"""


class Environment:
    """A virtual environment with some of the distributions, and a folder to work in."""

    def __init__(self, home: Path, *distributions: str) -> None:
        self.work = home / "work"
        self.work.mkdir(parents=True)
        self.bin = home / "venv" / "bin"
        venv.create(home / "venv", with_pip=True)
        pip = f"pip install --quiet --disable-pip-version-check -c {ROOT}/constraints.txt"
        # Ours first, from nowhere else; then what they need.
        ours = [name.partition("[")[0] for name in distributions]
        self.run(f"{pip} --no-index --no-deps --find-links {ROOT}/dist {shlex.join(ours)}")
        self.run(f"{pip} {shlex.join(distributions)}")

    def run(self, command: str) -> str:
        """What a command prints. It must succeed."""
        print(f"$ {command}", flush=True)
        clean = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
        environment = {**clean, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, shell=True, cwd=self.work, env=environment, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit(f"{done.stdout}\nfailed with status {done.returncode}: {command}")
        return done.stdout


def blocks(kind: str) -> list[str]:
    """The code blocks of README of one kind."""
    every = re.findall(r"^```([^\n]*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return [content for info, content in every if info == kind]


def commands() -> list[str]:
    """The commands of README that start with `prunus`, made short."""
    found = [line for block in blocks("") for line in block.splitlines()]
    short = [line.partition("#")[0].strip() for line in found if line.startswith("prunus ")]
    for pattern, instead in SHORT:
        short = [re.sub(pattern, instead, line) for line in short]
    return short


def try_prunus(environment: Environment) -> Path:
    """Everything that README does; the deployed network that is left of it."""
    environment.run("prunus --version")
    environment.run("prunus demo --scale smoke")  # all of `make demo` takes minutes
    (environment.work / "readme.py").write_text("".join(blocks("python")))
    environment.run("python readme.py")
    (environment.work / "experiment.yaml").write_text(EXPERIMENT)
    for command in commands():
        environment.run(command)
    return environment.work / "model.prunus"


def try_runtime(environment: Environment, model: Path) -> None:
    """A deployed network, where nothing but numpy is installed."""
    installed = json.loads(environment.run("pip list --format json"))
    names = {package["name"] for package in installed} - {"pip", "setuptools", "wheel"}
    if names != {"prunus-runtime", "numpy"}:
        sys.exit(f"prunus-runtime needs numpy and nothing else, but there are {sorted(names)}")
    about = environment.run(f"python -m prunus_runtime info {model}")
    shape = re.search(r"^input (\(.*?\))", about, re.M)
    assert shape, about
    x = f"np.save('x.npy', np.ones((5, *{shape[1]}), np.float32))"
    environment.run(f'python -c "import numpy as np; {x}"')
    environment.run(f"python -W error -m prunus_runtime run {model} x.npy y.npy")  # no fallback


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        model = try_prunus(Environment(Path(home, "prunus"), "prunus[demo]", "prunus-runtime"))
        try_runtime(Environment(Path(home, "runtime"), "prunus-runtime"), model)
    print("The distributions work.")


if __name__ == "__main__":
    main()
