"""Whether the weights of a model follow a pattern N:M, which some hardware computes faster with."""

from __future__ import annotations

from torch import nn

from prunus.errors import SettingError
from prunus.gates import parse_pattern, pattern_for
from prunus.selection import candidates


def check_pattern(model: nn.Module, pattern: str) -> dict[str, bool]:
    """For each weight of a linear layer or convolution: are at most `N` of `M` inputs not zero?

    `model` is a plain one, as after `strip`; `pattern` is for example `"2:4"`. A weight whose
    inputs are not a multiple of `M` does not follow it.
    """
    if parse_pattern(pattern) is None:
        raise SettingError(f"pattern={pattern!r} is not N:M, such as '2:4'")
    found = {}
    for candidate in candidates(model):
        if candidate.kind in ("conv", "linear"):
            try:
                groups = pattern_for(candidate, pattern)
            except SettingError:
                found[candidate.name] = False
                continue
            assert groups is not None
            kept = (groups.groups(candidate.parameter.detach()) != 0).sum(-1)
            found[candidate.name] = bool((kept <= groups.kept).all())
    return found
