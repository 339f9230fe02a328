"""The build of the native core, and the core under the address sanitizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import run
from prunus_runtime import native
from prunus_runtime.compile import CompilationError, compile_native, compiler

HERE = Path(__file__).parent

SANITIZED = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from hypothesis import given, settings
from graphs import batch, graphs
from native_paths import everything_split
from prunus_runtime import native
from prunus_runtime.executor import Network

@given(graph=graphs())
@settings(max_examples=40, deadline=None, database=None, derandomize=True)
def test(graph):
    for isa in native.ISAS:
        if native.lanes(isa):
            network = Network(graph, 1, isa=isa)
            for n in (1, 4, 7, 17):
                network(batch(graph, n))
            with everything_split():
                shared = Network(graph, 2, isa=isa)
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
    if native.available():
        assert asked(Path(native.LIBRARY)) == "True\nNone\n"


def test_the_runtime_needs_no_torch() -> None:
    modules = "executor, native, plan"
    program = f"import sys; from prunus_runtime import {modules}; print('torch' in sys.modules)"
    assert run("-c", program) == "False\n"
