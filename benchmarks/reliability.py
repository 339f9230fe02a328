"""Kills and starves real commands at random moments, and compares what they find in the end.

A small search and a small sweep on digits are done once without trouble. Then, again and again,
the command is started, and a random time after it began to work

- it is killed (SIGKILL): `prunus search`; `prunus sweep` alone, or with all its workers at once; a
  search in the Trainer of transformers or Lightning (`killed_trainer.py`); or
- its disk, a small tmpfs, is filled to the last byte until the command gives up. It has to say that
  the disk is full, without a traceback. Then the room is given back.

Each time the same command goes on, and is interrupted again, until it reaches its end before its
next interruption. Then every `results.json`, `metrics.jsonl` and ticket must have the same bytes as
those of the run without trouble, and a new folder is begun.

Two commands are tormented at a time. Run `python benchmarks/reliability.py`, as root because it
mounts the tmpfs. A part that is given no times, such as `--search-kills 0`, stays in the results
file as it was. Exits with 1 if anything differed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from prunus.files import write_atomically
from prunus.runs.origin import here
from prunus.runs.results import METRICS, RESULTS
from prunus.tables import text_table

TASK = "digits/digits_convnet"
SEARCH = ["search", "--task", TASK, "--mask-init", "-0.01", "--rounds", "2", "--threads", "1"]
SEARCH += ["--epochs", "4", "--batch-size", "20", "--rewind-epoch", "1.5"]
SEARCH += ["--set", "data.train_images=200", "--set", "checkpoint_every=3"]
EXPERIMENT = f"""\
name: small
tasks: {TASK}
settings:
  recipe: {{epochs: 4, batch_size: 20}}
  data: {{train_images: 200}}
  rounds: 2
  rewind_epoch: 1
  checkpoint_every: 3
rows:
  - {{method: {{name: cs, mask_init: -0.01}}, then: retrain}}
  - {{command: prune, method: {{name: gmp, target_density: 0.1}}}}
"""
SWEEP = ["sweep", "small.yaml", "--workers", "2", "--retry"]
"""With --retry, because a run that found the disk full has failed."""
DISK_MB = 16
SECONDS = 300
"""For one command, many times what it needs."""

Process = subprocess.Popen[bytes]
Content = dict[str, bytes]


@dataclass(frozen=True)
class Command:
    """Arguments of Python, without `--out`, and the file that is written when work begins."""

    arguments: list[str]
    begins: str

    @contextmanager
    def started(self, out: Path, log: Path) -> Iterator[Process]:
        """The command as a process of its own group, once it works (or has ended)."""
        command = [sys.executable, *self.arguments, "--out", str(out)]
        before = self._written(out)
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, cwd=log.parent, start_new_session=True
            )
        try:
            deadline = time.monotonic() + SECONDS
            while self._written(out) == before and process.poll() is None:
                assert time.monotonic() < deadline, f"it does not begin: {command}"
                time.sleep(0.002)
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _written(self, out: Path) -> list[int]:
        with suppress(FileNotFoundError):  # a checkpoint that was removed meanwhile
            return sorted(path.stat().st_mtime_ns for path in out.glob(self.begins))
        return []


TRAINER = str(Path(__file__).with_name("killed_trainer.py"))
COMMANDS = {
    "prunus search": Command(["-m", "prunus", *SEARCH], "*/settings.yaml"),
    "prunus sweep": Command(["-m", "prunus", *SWEEP], "sweep.json"),
    "Trainer of transformers": Command([TRAINER, "transformers"], "checkpoint-*"),
    "Trainer of Lightning": Command([TRAINER, "lightning"], "checkpoints/*.ckpt"),
}


@dataclass
class Part:
    """What happened to one command."""

    interruptions: int = 0
    runs: int = 0
    """Run folders, or sweeps, that were interrupted until they were finished, and compared."""
    files: int = 0
    """Results, metrics and tickets that were compared."""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    seed: int = 0
    machine: str = field(default_factory=lambda: here().machine)
    commit: str | None = field(default_factory=lambda: here().commit)


def content(out: Path) -> Content:
    """Every file that says what the runs below a folder found."""
    files = (
        p for p in out.rglob("*") if p.name in (RESULTS, METRICS) or p.suffix == ".safetensors"
    )
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def differences(found: Content, expected: Content) -> list[str]:
    """The names of files that are not in both, or not the same."""
    names = sorted(found.keys() | expected.keys())
    return [name for name in names if found.get(name) != expected.get(name)]


def kill(generator: random.Random, process: Process, _: Path) -> None:
    """Kill the command alone, or it and all processes that it has started."""
    (os.kill if generator.random() < 0.5 else os.killpg)(process.pid, signal.SIGKILL)
    process.wait(SECONDS)


def fill_disk(process: Process, out: Path) -> None:
    """Leave the disk of `out` no byte until the command has ended."""
    deadline, filler = time.monotonic() + SECONDS, out.parent / "filler"
    with filler.open("wb", buffering=0) as file:
        while process.poll() is None:  # again, because what it deletes makes room
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
            assert time.monotonic() < deadline, "it does not give up"
            time.sleep(0.002)
    filler.unlink()


def interrupted(
    command: Command, out: Path, log: Path, after: float, interrupt: Callable[[Process, Path], None]
) -> bool:
    """Interrupt a command after so many seconds of work; False if it has reached its end before."""
    with command.started(out, log) as process:
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            interrupt(process, out)
    status, said = process.returncode, log.read_text(errors="replace")
    if status == 0:
        return False
    full = status == 1 and "prunus: " in said and "the disk is full" in said
    if (status == -signal.SIGKILL or full) and "Traceback" not in said:
        return True
    raise RuntimeError(f"ended with {status}: {said.strip()[-1000:]}")


def torment(
    command: Command,
    interrupt: Callable[[Process, Path], None],
    times: int,
    folder: Path,
    log: Path,
    generator: random.Random,
) -> Part:
    """Interrupt a command so many times, in as many runs as that takes."""
    part, began = Part(), time.monotonic()
    with command.started(folder / "whole", log) as process:
        at_work = time.time()
        assert process.wait(SECONDS) == 0, log.read_text()
    expected = content(folder / "whole")
    duration = max((folder / "whole" / name).stat().st_mtime for name in expected) - at_work
    while part.interruptions < times:
        out, before = folder / "interrupted", part.interruptions
        try:
            while interrupted(
                *(command, out, log),
                generator.uniform(0, duration) if part.interruptions < times else SECONDS,
                interrupt,
            ):
                part.interruptions += 1
            wrong = differences(content(out), expected)
        except RuntimeError as error:
            part.interruptions += 1
            wrong = [str(error)]
        part.problems += wrong
        if part.interruptions > before:
            part.runs += 1
            part.files += len(expected)
        rmtree(out)
    part.seconds = round(time.monotonic() - began, 1)
    return part


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A folder on a disk of `DISK_MB` megabytes."""
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_MB}m"]
    subprocess.run(["mount", *options, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/reliability.json"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search-kills", type=int, default=50)
    parser.add_argument("--sweep-kills", type=int, default=20)
    parser.add_argument("--trainer-kills", type=int, default=10, help="of each Trainer")
    parser.add_argument("--search-full", type=int, default=15, help="disk-full moments")
    parser.add_argument("--sweep-full", type=int, default=5, help="disk-full moments")
    arguments = parser.parse_args()
    with (
        TemporaryDirectory() as place,
        small_disk(Path(place) / "disk-search") as for_search,
        small_disk(Path(place) / "disk-sweep") as for_sweep,
        ThreadPoolExecutor(2) as threads,
    ):
        (Path(place) / "small.yaml").write_text(EXPERIMENT)
        futures = {}
        for name, what, times in (
            ("prunus sweep", "SIGKILL", arguments.sweep_kills),
            ("prunus search", "SIGKILL", arguments.search_kills),
            ("Trainer of transformers", "SIGKILL", arguments.trainer_kills),
            ("Trainer of Lightning", "SIGKILL", arguments.trainer_kills),
            ("prunus search", "disk full", arguments.search_full),
            ("prunus sweep", "disk full", arguments.sweep_full),
        ):
            if not times:
                continue
            title = f"`{name}`, {what}" if name.startswith("prunus") else f"{name}, {what}"
            generator = random.Random(f"{arguments.seed} {title}")
            interrupt = partial(kill, generator) if what == "SIGKILL" else fill_disk
            disk = for_search if name == "prunus search" else for_sweep
            folder = (Path(place) if what == "SIGKILL" else disk) / name.split()[-1]
            log = Path(place) / f"{name} {what}.log"
            futures[title] = threads.submit(
                torment, COMMANDS[name], interrupt, times, folder, log, generator
            )
        parts = {title: future.result() for title, future in futures.items()}
    for part in parts.values():
        part.seed = arguments.seed
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    known |= {title: asdict(part) for title, part in parts.items()}
    write_atomically(arguments.out, json.dumps(known, indent=1) + "\n")
    rows = [
        [title, *map(str, (p.interruptions, p.runs, p.files, len(p.problems), p.seconds))]
        for title, p in parts.items()
    ]
    print(text_table(["", "times", "runs", "files", "problems", "seconds"], rows))
    sys.exit(any(part.problems for part in parts.values()))


if __name__ == "__main__":
    main()
