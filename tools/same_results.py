"""Do two versions of Prunus find the same, bit for bit? Runs the same commands with both.

    python tools/same_results.py OLD NEW [--work FOLDER] [--only WORD]

OLD and NEW are checkouts. Each command runs on digits in a process of its own with one thread; then
the run folders of both versions are compared by name: every stage's epochs, densities and metrics,
every epoch's loss, every tensor and mask of every ticket, and what a deployed file computes. Exits
with 1 if anything differs. Files of older versions are read by this version's readers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from prunus.runs.results import EpochMetrics, RunResults, parse_epoch, parse_results
from prunus.tickets import Ticket

SMALL = ["--task", "digits/digits_convnet", "--epochs", "3"]
PRUNED = ["gmp", "mp", "netslim", "dnw", "str", "l0", "random", "iss", "imp", "imp-c", "seq-cs"]
TARGETS = {"gmp", "mp", "netslim", "dnw", "random"}


def commands() -> dict[str, list[str]]:
    """Name -> arguments of `prunus`; later ones use what earlier ones left in `runs/`."""
    target = ["--target-density", "0.1"]
    found = {
        "train": ["train", *SMALL],
        "train, another network and seed": ["train", "--task", "digits/lenet", "--seed", "3"],
        "train, bf16, clipped, in parts": [
            *("train", *SMALL, "--set", "engine.precision=bf16"),
            *("--set", "engine.clip=1.0", "--set", "engine.accumulate=2"),
        ],
        "search": ["search", *SMALL, "--mask-init", "-0.05", "--rounds", "2", "--whole-tickets"],
        "search with a budget": ["search", *SMALL, *target],
        "search, filters": [
            *("search", *SMALL, "--rounds", "1", "--set", "method.granularity=filter"),
            *("--set", "method.mask_init=0.05"),
        ],
        "prune with a budget": ["prune", *SMALL, *target],
        "prune by amc": [
            *("prune", *SMALL, "--method", "amc", *target, "--set", "method.episodes=8"),
            *("--set", "method.warmup=3"),
        ],
    }
    for method in PRUNED:
        own = target if method in TARGETS else []
        found[f"prune by {method}"] = ["prune", *SMALL, "--method", method, *own]
        found[f"search by {method}"] = [
            *("search", *SMALL, "--method", method, "--rounds", "2", *own),
        ]
    return found


def after(runs: Path) -> dict[str, list[str]]:
    """Commands on the tickets of the first search."""
    searches = runs.glob("digits-digits_convnet-cs-search-*")
    (search,) = (folder for folder in searches if _has_rounds(folder, 2))
    ticket = str(search / "tickets/round-2.safetensors")
    again = {
        "retrain": ["retrain", ticket, "--epochs", "3"],
        "rates of": ["search", *SMALL, "--method", "imp", "--rates-of", str(search)],
    }
    for control in ("reinit", "shuffled", "random"):
        again[f"retrain, {control}"] = ["retrain", ticket, "--epochs", "3", "--control", control]
    return again


def _has_rounds(folder: Path, rounds: int) -> bool:
    results = json.loads((folder / "results.json").read_text())
    return len(results["stages"]) == rounds


def run(version: Path, work: Path, arguments: list[str]) -> None:
    """One `prunus` command in the folder `work`."""
    environment = {**os.environ, "PYTHONPATH": str(version / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "prunus", *arguments],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{version}: prunus {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")


def differences(old: Path, new: Path) -> Iterator[str]:
    """What differs between two folders of runs."""
    names = {path.parent.relative_to(old) for path in old.rglob("results.json")}
    others = {path.parent.relative_to(new) for path in new.rglob("results.json")}
    for name in sorted(names ^ others):
        yield f"{name}: only in the {'old' if name in names else 'new'} version"
    for name in sorted(names & others):
        yield from (f"{name}: {what}" for what in _different(old / name, new / name))


def _different(old: Path, new: Path) -> Iterator[str]:
    if _results(old) != _results(new):
        yield f"results {_results(old)} are now {_results(new)}"
    if _epochs(old) != _epochs(new):
        yield "the metrics of epochs differ"
    tickets = sorted(path.relative_to(old) for path in old.rglob("*.safetensors"))
    if tickets != sorted(path.relative_to(new) for path in new.rglob("*.safetensors")):
        yield "other tickets"
        return
    for path in tickets:
        before, now = Ticket.load(old / path), Ticket.load(new / path)
        if before.mask != now.mask:
            yield f"{path}: another mask"
        if before.weights.keys() != now.weights.keys() or any(
            not torch.equal(tensor, now.weights[n]) for n, tensor in before.weights.items()
        ):
            yield f"{path}: other weights"
        for field in ("task", "method", "seed", "rewind_point"):
            if getattr(before.manifest, field) != getattr(now.manifest, field):
                yield f"{path}: another {field}"
        settings = before.manifest.settings
        for name, value in settings.items():
            if now.manifest.settings.get(name) != value:
                yield f"{path}: {name}={value} is now {now.manifest.settings.get(name)}"


def _results(folder: Path) -> RunResults:
    return parse_results(json.loads((folder / "results.json").read_text()))


def _epochs(folder: Path) -> list[EpochMetrics]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [parse_epoch(json.loads(line)) for line in lines]


def deployed(work: Path) -> np.ndarray:
    """What the deployed file computes for a fixed batch."""
    import prunus_runtime

    images = np.random.default_rng(0).standard_normal((5, 1, 8, 8)).astype(np.float32)
    return np.asarray(prunus_runtime.load(work / "model.prunus")(images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--work", type=Path, default=Path("/tmp/prunus-same-results"))
    parser.add_argument("--only", default="", help="only commands whose name has this word")
    options = parser.parse_args()
    versions = {"old": options.old.resolve(), "new": options.new.resolve()}
    folders = {name: options.work / name for name in versions}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in commands().items():
        if options.only in name:
            print(name, flush=True)
            for version, folder in folders.items():
                run(versions[version], folder, arguments)
    if not options.only:
        for name in after(folders["old"] / "runs"):
            print(name, flush=True)
            for version, folder in folders.items():
                run(versions[version], folder, after(folder / "runs")[name])
        print("deploy", flush=True)
        for version, folder in folders.items():
            (pruned,) = (folder / "runs").glob("digits-digits_convnet-cs-prune-*")
            run(versions[version], folder, ["deploy", str(pruned)])
        print("reproduce", flush=True)
        for name in ("table1", "figure6", "figure12"):
            for version, folder in folders.items():
                run(versions[version], folder, ["reproduce", name, "--scale", "smoke"])
    found = list(differences(folders["old"] / "runs", folders["new"] / "runs"))
    if not options.only and not np.array_equal(*map(deployed, folders.values())):
        found.append("the deployed file computes something else")
    count = len(list((folders["old"] / "runs").rglob("results.json")))
    print("\n".join(found) or f"{count} runs and their tickets are equal, bit for bit.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
