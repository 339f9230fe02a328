"""The build of the native core, and the core under the address sanitizer."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prunus_runtime import compile, native
from prunus_runtime.compile import CompilationError, compile_native, compiler
from prunus_runtime.native import interface
from support.processes import run

SANITIZED = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from hypothesis import given, settings
from support.graphs import batch, graphs
from support.integers import integer_networks
from support.native_paths import BUNDLED, OF_FILTERS, everything_split
from support.transformers import transformers
from prunus_runtime import native
from prunus_runtime import Deployed

@given(graph=graphs() | transformers() | integer_networks())
@settings(max_examples=40, deadline=None, database=None, derandomize=True)
def test(graph):
    for isa in native.ISAS:
        if native.lanes(isa):
            network = Deployed(graph, 1, isa=isa)
            for n in (1, 4, 7, 17):
                network(batch(graph, n))
            for lists in ({{}}, BUNDLED, OF_FILTERS):
                with everything_split(lists):
                    shared = Deployed(graph, 2, isa=isa)
                    for n in (1, 3, 33):
                        shared(batch(graph, n))
test()
print("done")
"""


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_no_access_out_of_bounds(tmp_path: Path) -> None:
    """Random networks with a core in which every access is checked."""
    command = [*(compiler() or []), "-print-file-name=libasan.so"]
    sanitizer = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not Path(sanitizer).is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    # Small tiles: the compiler takes minutes for large ones.
    calls = ["--param", "asan-instrumentation-with-call-threshold=0"]
    flags = ["-fsanitize=address", "-O1", "-g", *calls, "-UMOST", "-DMOST=8"]
    library = compile_native(tmp_path / "sanitized.so", flags)
    environment = {
        **os.environ,
        "LD_PRELOAD": sanitizer,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PRUNUS_NATIVE": str(library),
    }
    program = SANITIZED.format(path=sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "done\n"


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilationError, match=r"install g\+\+ or clang\+\+, or set CXX"):
        compile_native(tmp_path / "x.so")
    monkeypatch.setenv("CXX", "no-such-compiler --fast")
    with pytest.raises(CompilationError, match="cannot run no-such-compiler"):
        compile_native(tmp_path / "x.so")
    assert not (tmp_path / "x.so").exists()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_a_compiler_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(CompilationError, match="no-such-option"):
        compile_native(tmp_path / "x.so", ["-fno-such-option"])


def _library(path: Path, source: str) -> Path | None:
    """A library with this content, if there is a compiler."""
    command = compiler()
    if command is None:
        return None
    path.with_suffix(".cpp").write_text(source)
    arguments = ["-shared", "-fPIC", str(path.with_suffix(".cpp")), "-o", str(path)]
    subprocess.run([*command, *arguments], check=True)
    return path


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ("    SOFTMAX = auto()\n", "fancy"),
        ("    GELU_TANH = auto()\n", "FANCY"),
    ],
)
def test_what_is_declared_must_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, complaint: str
) -> None:
    """A kernel or an activation that has no code does not compile."""
    sources = shutil.copytree(compile.SOURCES, tmp_path / "native")
    interface = sources / "interface.py"
    interface.write_text(interface.read_text().replace(declared, f"{declared}    FANCY = auto()\n"))
    monkeypatch.setattr(compile, "SOURCES", sources)
    monkeypatch.setattr(compile, "_ISAS", {"portable": (4, 3, [])})
    monkeypatch.setattr(platform, "machine", lambda: "any")
    with pytest.raises(CompilationError, match=f"error: .*{complaint}"):
        compile_native(tmp_path / "x.so", ["-O0"])


def test_the_core_and_the_planner_declare_the_same() -> None:
    """numpy and the C++ compiler agree about sizes: both have no gaps."""
    assert native.INSTRUCTION.itemsize == 8 * (4 + 3 * 8 + interface.MOST_PARAMETERS + 4 + 3)
    assert f'"{interface.ABI}"' in interface.header()
    for parameters in interface.PARAMETERS.values():
        assert set(parameters.__annotations__.values()) == {int}


def test_what_keeps_the_core_from_being_used(tmp_path: Path) -> None:
    program = (
        "from prunus_runtime import native; print(native.available()); print(native.why_not())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def asked(library: Path) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "PRUNUS_NATIVE": str(library)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    missing = asked(tmp_path / "none.so")
    assert missing.startswith("False")
    assert "python -m prunus_runtime.compile" in missing
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"nothing")
    assert "cannot be loaded" in asked(broken)
    stale = _library(tmp_path / "stale.so", 'extern "C" const char* prunus_abi() { return "old"; }')
    older = _library(tmp_path / "older.so", "int without_a_hash;")
    for library in filter(None, (stale, older)):
        reason = asked(library)
        assert f"{library} was compiled for another version of Prunus" in reason
        assert "`python -m prunus_runtime.compile` compiles it again" in reason
    if native.available():
        assert asked(Path(native.LIBRARY)) == "True\nNone\n"


def test_the_runtime_needs_no_torch() -> None:
    modules = "executor, native, planner"
    program = f"import sys; from prunus_runtime import {modules}; print('torch' in sys.modules)"
    assert run("-c", program) == "False\n"
