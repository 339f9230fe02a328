"""Options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class SweepOptions:
    """How and where the runs of a sweep are done."""

    workers: int | None = None
    "Processes (default: as many as GPUs, or else as cores)."
    threads: int = 1
    "Threads of each run. Results depend on it in their last bits, but not on workers."
    cluster: str | None = None
    "Address of a Dask scheduler, whose workers do the runs instead: tcp://HOST:8786."
    data: Path | None = None
    "Folder with the data sets (default: data)."
    out: Path | None = None
    "Folder for everything (default: runs/NAME, with -SCALE if there is one)."
    dry_run: Flag = False
    "Only list the runs, and how far each is."
    known: tuple[Path, ...] = ()
    "A file of prunus report --json: runs whose results it holds count as finished."
    retry: Flag = False
    "Also retry runs that failed before."
    download: Flag = False
    "Fetch missing data from its official place."
