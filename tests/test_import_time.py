"""`import prunus` is cheap."""

from __future__ import annotations

from support.processes import run

RUNS = 6
# About 35 ms where importing torch takes 700. It is measured against packages of Python's own: a
# limit in seconds, or relative to torch's shared libraries, means something else on every machine.
YARDSTICK = (
    "asyncio, concurrent.futures.process, http.server, logging.config, unittest.mock, "
    "xml.dom.minidom"
)
MEASURE = f"""
import gc, time
gc.disable()  # a collection of all that torch has loaded takes as long again, whoever triggers it
clock = time.process_time  # of this process alone, because other tests may keep the machine busy
start = clock()
import {YARDSTICK}
allowed = clock() - start
import torch
start = clock()
import prunus
print(clock() - start, allowed)
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


def test_import_costs_no_more_than_a_few_packages_of_pythons_own() -> None:
    times: list[str] = []
    for _ in range(RUNS):  # the first run may have to compile the package
        ours, allowed = map(float, run("-c", MEASURE).split())
        times.append(f"{1000 * ours:.0f} of {1000 * allowed:.0f} ms")
        if ours <= allowed:
            return
    raise AssertionError(times)


def test_import_loads_nothing_heavy() -> None:
    assert run("-c", LOADED) == "[]\n"
