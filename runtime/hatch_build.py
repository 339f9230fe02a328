"""The build hook: compiles the native core into the wheel, where there is a compiler."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the library to the wheel, and the platform to its tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        module = _compile()
        try:
            library = module.compile_native()
        except module.CompilationError as error:
            note = "the sparse runtime's native core was not compiled, numpy will stand in:"
            print(note, error, file=sys.stderr)
            return
        build_data["artifacts"].append(f"prunus_runtime/{library.name}")
        build_data["pure_python"] = False
        build_data["tag"] = module.platform_tag()


def _compile() -> ModuleType:
    """`prunus_runtime.compile`, without the package around it: its dependencies are not here."""
    path = Path(__file__).parent / "prunus_runtime/compile.py"
    spec = importlib.util.spec_from_file_location("prunus_runtime_compile", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
