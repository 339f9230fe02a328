"""Keeps what `prunus reproduce` found, in results/ and docs/images, for the documentation.

prunus reproduce table1 --scale cpu --data DIR
python benchmarks/keep_reproduced.py runs/table1-cpu
python benchmarks/render.py
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from prunus_runtime.atomic import write_atomically

ROOT = Path(__file__).parent.parent


def picture_name(name: str, task: str) -> str:
    """The plot of a task in docs/images; as `prunus report` names it, after the recipe's name."""
    plain = re.sub(r"[^\w.-]+", "-", task)
    return f"{name}-{plain}.svg"


def keep(folder: Path, root: Path = ROOT) -> None:
    """Copy the comparison and the plots of one folder."""
    [source] = [path for path in folder.glob("*.json") if path.name != "sweep.json"]
    content = json.loads(source.read_text())
    name = f"{content['recipe']}-{content['scale']}"
    for suffix in (".json", ".csv"):
        write_atomically(
            root / "results" / f"{name}{suffix}", source.with_suffix(suffix).read_text()
        )
    for task in dict.fromkeys(point["task"] for point in content["points"]):
        picture = folder / picture_name("accuracy", task)
        if picture.exists():
            copy = root / "docs" / "images" / picture_name(name, task)
            write_atomically(copy, picture.read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    keep(parser.parse_args().folder)
