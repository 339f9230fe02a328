"""Compiles the native core with the system's C++ compiler: `python -m prunus_runtime.compile`.

Building the package does this too (`hatch_build.py`). This file imports nothing of the package,
because the build runs it where nothing is installed.
"""

from __future__ import annotations

import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY = Path(__file__).parent / f"_native{SUFFIX}"

_FLAGS = [
    *("-std=c++17", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wno-psabi"),
    "-Werror=switch",  # every activation has its function
    # A product and a sum become one operation; nothing else is reordered.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"),
]
_AVX512 = ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mfma"]
_AVX512 += ["-mprefer-vector-width=512"]
_ISAS = {
    # name: (lanes, vectors of sums in registers, flags)
    "avx512": (16, 24, _AVX512),
    "avx2": (8, 12, ["-mavx2", "-mfma"]),
    "portable": (4, 12, []),
}


class CompilationError(RuntimeError):
    """There is no compiler, or it failed; the message says which, and what it said."""


def compiler() -> list[str] | None:
    """The command of the C++ compiler: `$CXX`, else g++, clang++ or c++, if there is one."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    return next(([name] for name in ("g++", "clang++", "c++") if shutil.which(name)), None)


def compile_native(library: Path = LIBRARY, flags: Sequence[str] = ()) -> Path:
    """Compiles into `library`, which appears only when it is complete. `flags` come last."""
    command = compiler()
    if command is None:
        raise CompilationError("no C++ compiler found: install g++ or clang++, or set CXX")
    command = [*command, *_FLAGS]
    x86 = platform.machine().lower() in ("x86_64", "amd64") and sys.maxsize > 2**32
    if x86:
        command.append("-DPRUNUS_X86")
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        interface = runpy.run_path(str(SOURCES / "interface.py"))
        Path(folder, "interface.h").write_text(interface["header"]())
        command.append(f"-I{folder}")
        jobs = {"runtime": [*command, str(SOURCES / "runtime.cpp")]}
        for isa, (lanes, most, options) in _ISAS.items():
            if x86 or isa == "portable":
                names = [f"-DKERNELS=kernels_{isa}", f"-DMOST_VECTORS=most_{isa}"]
                sizes = [f"-DLANES={lanes}", f"-DMOST={most}"]
                jobs[isa] = [*command, *options, *names, *sizes, str(SOURCES / "kernels.cpp")]
                gates = [f"-DGATES=prunus_gates_{isa}", str(SOURCES / "gates.cpp")]
                jobs[f"gates_{isa}"] = [*command, *options, *gates]
        objects = {name: f"{folder}/{name}.o" for name in jobs}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, ([*jobs[n], *flags, "-c", "-o", objects[n]] for n in jobs)))
        linked = f"{folder}/library{SUFFIX}"
        _run([*command, *flags, "-shared", *objects.values(), "-o", linked])
        Path(linked).replace(library)
    return library


def platform_tag() -> str:
    """The wheel's tag: any Python 3, this platform."""
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{system}"


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise CompilationError(f"cannot run {command[0]}: {error}") from error
    if done.returncode:
        raise CompilationError(f"{shlex.join(command)}\n{done.stderr[:4000]}")


if __name__ == "__main__":
    print(f"compiled {compile_native()}")
