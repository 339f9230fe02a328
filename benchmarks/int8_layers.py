"""Would int8 activations make sparse linear layers faster? A prototype beside float32 kernels.

Compiles `int8_layers.cpp`, for processors with AVX-512 and VNNI, and runs it: layers of tokens at
several densities, one thread, the best of several turns in seconds of the processor.

Run `python benchmarks/int8_layers.py --out results/int8.json`; half a minute of a processor.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from prunus.files import write_atomically
from prunus_runtime.compile import compiler

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ["-O3", "-std=c++17", "-mfma"]
FLAGS += [f"-mavx512{part}" for part in ("f", "vl", "bw", "dq", "vnni")]


def gain(row: dict[str, float]) -> float:
    """The time of the better float32 kernel over that of int8 with the rounding of its inputs."""
    return min(row["fp32_lists"], row["fp32_bundles"]) / (row["int8_groups"] + row["rounding"])


def measure() -> list[dict[str, float]]:
    """One row for each layer and density."""
    command = compiler()
    if command is None:
        raise SystemExit("no C++ compiler found: install g++ or clang++, or set CXX")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "int8_layers"))
        subprocess.run([*command, *FLAGS, str(SOURCE), "-o", program], check=True)
        printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in printed.splitlines()]
    return [{**row, "gain": gain(row)} for row in rows]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    rows = measure()
    for row in rows:
        layer = f"{row['inputs']} to {row['outputs']}"
        print(f"{layer}, {100 * row['density']:g} %: int8 is {row['gain']:.2f} times as fast")
    if options.out:
        write_atomically(options.out, json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
