"""`import prunus` is cheap beside `import torch`."""

from __future__ import annotations

from support.processes import run

SECONDS = 0.050
SHARE = 0.05  # of the import of torch, on a machine so slow that this is more
RUNS = 6

MEASURE = """
import time
clock = time.process_time  # of this process alone: other tests may keep the machine busy
start = clock()
import torch
middle = clock()
import prunus
print(middle - start, clock() - middle)
"""

HEAVY = (
    *("altair", "sklearn", "pandas", "matplotlib", "rich", "cyclopts", "torch._dynamo", "onnx"),
    *("prunus_runtime.graph", "prunus_runtime.ops", "prunus_runtime.plan", "prunus_runtime.native"),
)
LOADED = f"""
import sys
import torch
before = set(sys.modules)
import prunus
print([name for name in {HEAVY!r} if name in sys.modules and name not in before])
"""


def test_import_takes_at_most_50_ms_more_than_torch() -> None:
    times: list[float] = []
    for _ in range(RUNS):  # the first run may have to compile the package
        torch, prunus = map(float, run("-c", MEASURE).split())
        times.append(prunus)
        if prunus <= max(SECONDS, SHARE * torch):
            return
    raise AssertionError([f"{1000 * t:.0f} ms" for t in times])


def test_import_loads_nothing_heavy() -> None:
    assert run("-c", LOADED) == "[]\n"
