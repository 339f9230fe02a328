"""What made a run: code, machine and time, beside its results because equal runs differ in it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from functools import lru_cache
from pathlib import Path

import torch

from prunus.files import parse_json, read_text, write_json
from prunus.schema import Schema
from prunus.version import __version__

ORIGIN = "origin.json"


class Origin(Schema):
    """The content of `origin.json`."""

    prunus: str
    commit: str | None = None
    """Of the clone that the code is in, with `-dirty` if it was changed since."""
    torch: str
    processor: str
    cores: int
    threads: int | None = None
    """Of each process, on which the last bits of results depend; older files do not have it."""
    device: str = "cpu"
    seconds: float = 0.0
    """Of work until the last stage that was finished, in all sessions."""

    @property
    def machine(self) -> str:
        """For people."""
        used = "" if self.threads is None else f", threads: {self.threads}"
        on = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.processor}, {self.cores} cores{used}{on}, torch {self.torch}"


class Stopwatch:
    """Keeps the `origin.json` of a run's folder, from session to session."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._path = folder / ORIGIN
        before = read_origin(folder)
        self._before = before.seconds if before else 0.0
        self._began = time.monotonic()
        on = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        update = {"device": on, "threads": torch.get_num_threads()}
        self._origin = here().model_copy(update=update)

    def write(self) -> None:
        """Write it, with the time until now."""
        seconds = round(self._before + time.monotonic() - self._began, 1)
        origin = self._origin.model_copy(update={"seconds": seconds})
        write_json(self._path, origin.model_dump(mode="json", exclude_defaults=True))


def read_origin(folder: Path) -> Origin | None:
    """What made the run in a folder; None if nothing, or nothing readable, says so."""
    try:
        return Origin.parse(parse_json(read_text(folder / ORIGIN)))
    except (OSError, ValueError):  # a SettingError is a ValueError
        return None


@lru_cache(maxsize=1)
def here() -> Origin:
    """This code on this machine."""
    return Origin(
        prunus=__version__,
        commit=_commit(),
        torch=torch.__version__,
        processor=_processor(),
        cores=os.cpu_count() or 1,
    )


def _commit() -> str | None:
    clone = Path(__file__).parents[3]
    if not (clone / ".git").exists():  # installed, perhaps inside somebody's own repository
        return None
    command = ["git", "-C", str(clone), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
