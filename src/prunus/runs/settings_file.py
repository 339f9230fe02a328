"""Settings as text: YAML files, and `name=value` on the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from prunus.errors import SettingError
from prunus.files import DEEPEST, read_text, write_atomically
from prunus.schema import Schema

_MOST_VALUES = 100_000
"""In a file of settings; the largest of ours has a few hundred."""
_LONGEST_NUMBER = 100
"""Characters. Python can neither show nor quickly make integers of many thousands."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML, in which `2:4` is text, as in YAML 1.2, rather than a number in base 60."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: tuple[bool, bool]) -> Any:
        tag = super().resolve(kind, value, implicit)
        if tag in _NUMBERS and ":" in value:
            return self.DEFAULT_SCALAR_TAG
        return tag


class _GivenTwiceError(SettingError):
    """A mapping has a name twice."""


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        content = parse_yaml(read_text(path))
    except OSError as error:
        raise SettingError(f"cannot read the settings {path}: {error.strerror}") from error
    except _GivenTwiceError as error:
        raise SettingError(f"{path}: {error}") from error
    except ValueError as error:
        raise SettingError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SettingError(f"{path} must hold 'name: value' lines, not {content!r:.60}")
    return content


def parse_yaml(text: str) -> Any:
    """The plain data in a YAML text. Whatever is wrong with it is a `ValueError`.

    Aliases (`*name`) let a few hundred bytes stand for gigabytes: what they stand for is counted
    before it is made.
    """
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise SettingError(_in_one_line(error)) from error
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        if _size(root, {}) > _MOST_VALUES:
            raise SettingError(f"it holds more than {_MOST_VALUES:,} values, aliases counted")
        if _depth(root) > DEEPEST:
            raise SettingError(f"it is nested more than {DEEPEST} deep")
        if _longest_number(root) > _LONGEST_NUMBER:
            raise SettingError(f"it has a number of more than {_LONGEST_NUMBER} characters")
        if (twice := _given_twice(root)) is not None:
            raise _GivenTwiceError(
                f"{twice.value!r:.60} is given twice in one place (the second time in line "
                f"{twice.start_mark.line + 1}): leave one of them out"
            )
        return loader.construct_document(root)
    except RecursionError as error:
        raise SettingError("it is nested too deeply") from error
    except yaml.YAMLError as error:
        raise SettingError(_in_one_line(error)) from error
    except (AttributeError, LookupError, TypeError) as error:  # what SafeLoader makes of `!!bool 7`
        raise SettingError("a value is not of the type that its tag (!!) says") from error
    finally:
        loader.dispose()


def _in_one_line(error: yaml.YAMLError) -> str:
    place = getattr(error, "problem_mark", None)
    if place is None:
        return " ".join(str(error).split())
    return f"{error.problem} (line {place.line + 1}, column {place.column + 1})"


def _size(node: yaml.Node, known: dict[int, float]) -> float:
    """How many values a node stands for; infinitely many if it contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        known[id(node)] = 1 + sum(_size(part, known) for part in _parts(node))
    return known[id(node)]


def _depth(node: yaml.Node) -> int:
    return 1 + max(map(_depth, _parts(node)), default=0)


def _longest_number(node: yaml.Node) -> int:
    own = len(node.value) if node.tag == "tag:yaml.org,2002:int" else 0
    return max(map(_longest_number, _parts(node)), default=own)


def _given_twice(node: yaml.Node) -> yaml.Node | None:
    """A key that its mapping has already. A parser would take the last one without a word."""
    if isinstance(node, yaml.MappingNode):
        known: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in known:
                    return key
                known.add((key.tag, key.value))
    return next(filter(None, map(_given_twice, _parts(node))), None)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    items = node.value if isinstance(node, yaml.CollectionNode) else []
    return [part for item in items for part in (item if isinstance(item, tuple) else (item,))]


def write_settings(path: Path, settings: Schema) -> Path:
    """Write complete settings; `--config` takes the file to do the same again."""
    content = settings.model_dump(mode="json")
    return write_atomically(path, yaml.safe_dump(content, sort_keys=False))


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings laid over each other: later ones win. Text under a mapping is its name."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if isinstance(value, Mapping):
                below = result.get(name)
                if isinstance(below, str):
                    below = {"name": below}
                value = merge(below if isinstance(below, Mapping) else {}, value)
            result[name] = value
    return result


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`{"method.mask_init": 0}` as `{"method": {"mask_init": 0}}`."""
    result: dict[str, Any] = {}
    for path, value in settings.items():
        for name in reversed(path.split(".")):
            value = {name: value}
        result = merge(result, value)
    return result


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The inverse: nested settings as `recipe.epochs`."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            result |= flattened(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def only_given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Nested flags without those that a person left out, which are None."""
    nested = {n: only_given(v) if isinstance(v, Mapping) else v for n, v in flags.items()}
    return {name: value for name, value in nested.items() if value not in (None, {})}


def overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """The nested settings that `recipe.epochs=8` and the like describe; values are YAML."""
    result: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not all(path.split(".")):
            raise SettingError(
                f"--set {assignment}: not of the form name=value, such as recipe.epochs=8"
            )
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise SettingError(f"--set {assignment}: {text!r} is not a value: {error}") from error
        result = merge(result, nested({path: value}))
    return result
