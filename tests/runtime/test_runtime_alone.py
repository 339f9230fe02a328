"""The runtime on a server that has numpy and nothing else of ours: no torch, no prunus."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import prunus_runtime
from prunus_runtime import reference
from prunus_runtime.file import save
from support.graphs import Builder, batch

PACKAGE = Path(prunus_runtime.__file__).parent

PROGRAM = """
import importlib.util, sys, warnings
from pathlib import Path
assert importlib.util.find_spec("torch") is None
assert importlib.util.find_spec("prunus") is None
warnings.simplefilter("ignore")
import numpy as np
import prunus_runtime
network = prunus_runtime.load("model.prunus", threads=1)
np.save("y.npy", network(np.load("x.npy")))
ours = {module.split(".")[0] for module in sys.modules} - set(sys.stdlib_module_names)
# What the environment itself loads at its start has such names.
ours = {name for name in ours if not name.startswith(("_", "distutils-precedence"))}
assert ours <= {"numpy", "prunus_runtime"}, ours
print(network.backend)
"""


def test_the_runtime_needs_numpy_only(tmp_path):
    home = tmp_path / "server"
    venv.create(home, symlinks=True)
    packages = next((home / "lib").glob("python3*/site-packages"))
    # As `pip install numpy` and `pip install --no-deps prunus` do, without the network and without
    # what of Prunus needs torch.
    site = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (site / name).exists():
            (packages / name).symlink_to(site / name)
    shutil.copytree(PACKAGE, packages / "prunus_runtime")
    net = Builder((3, 8, 8))
    x = net.activation(net.conv("x", 8, stride=(2, 2), density=0.1))
    x = net.add("add", [x, net.conv(x, 8, density=0.1)])
    graph = net.graph(net.linear(net.add("flatten", x), 5))
    images = batch(graph, 17)
    work = tmp_path / "work"
    save(graph, work / "model.prunus")
    np.save(work / "x.npy", images)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [home / "bin" / "python", "-c", PROGRAM],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        np.load(work / "y.npy"), reference.run(graph, images), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("module", ["", ".serve", ".__main__", ".planner"])
def test_no_module_imports_torch_or_prunus(module):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['prunus'] = None; "
        f"import prunus_runtime{module}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
