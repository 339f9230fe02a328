"""The sparsification methods, by the name that the command line and the results use."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from prunus.errors import SettingError
from prunus.lookup import import_named, unknown
from prunus.methods.base import Method as Method
from prunus.methods.builtin import CLASSES
from prunus.methods.common.statistics import LayerStatistics as LayerStatistics
from prunus.methods.common.statistics import Statistics as Statistics
from prunus.methods.hooks import Evaluate as Evaluate
from prunus.methods.settings import Governed as Governed
from prunus.methods.settings import Setting as Setting
from prunus.methods.settings import describe_settings as describe_settings


class _Methods(Mapping[str, type[Method]]):
    """The methods that Prunus brings; each is imported when it is first looked up."""

    def __getitem__(self, name: str) -> type[Method]:
        module, cls = CLASSES[name]
        method: type[Method] = getattr(import_module(module), cls)
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


METHODS: Mapping[str, type[Method]] = _Methods()


def find_method(name: str) -> type[Method]:
    """The method of that name, or the class that `package.module:Class` names.

    Modules in the current folder are found too.
    """
    if ":" not in name:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
        return METHODS[name]
    method = import_named(name, "class")
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise SettingError(
            f"method={name!r} is not a class that extends prunus.Method: see CONTRIBUTING.md on "
            "how to write one"
        )
    return method
