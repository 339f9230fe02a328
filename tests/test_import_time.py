"""`import prunus` is cheap beside `import torch`."""

from __future__ import annotations

import subprocess
import sys

LIMIT = 0.050  # seconds
RUNS = 6

MEASURE = """
import time
import torch
start = time.process_time()  # of this process alone: other tests may keep the machine busy
import prunus
print(time.process_time() - start)
"""

HEAVY = ("altair", "sklearn", "pandas", "matplotlib", "rich", "cyclopts", "torch._dynamo", "onnx")
LOADED = f"""
import sys
import torch
before = set(sys.modules)
import prunus
print([name for name in {HEAVY!r} if name in sys.modules and name not in before])
"""


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_import_takes_at_most_50_ms_more_than_torch() -> None:
    times: list[float] = []
    for _ in range(RUNS):  # the first run may have to compile the package
        times.append(float(run(MEASURE)))
        if min(times) <= LIMIT:
            break
    assert min(times) <= LIMIT, [f"{1000 * t:.0f} ms" for t in times]


def test_import_loads_nothing_heavy() -> None:
    assert run(LOADED) == "[]"
