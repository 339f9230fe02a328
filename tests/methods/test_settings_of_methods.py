"""Settings of methods: declared once, and what follows from the declaration."""

import inspect
from typing import Literal

import pytest
from torch import nn

import prunus
from prunus.methods import describe_settings
from prunus.methods.common.families import FixedMaskMethod, Rewinding
from prunus.methods.settings import REQUIRED, Must, setting


class Example(Rewinding, FixedMaskMethod):
    rewinds = True
    size: int = setting("how large", default=3, must=Must(lambda n: n > 0, "sizes are positive"))
    kind: Literal["a", "b"] = setting("which", default="a")
    limit: float | None = setting("how far", default=None, must=Must(lambda v: v < 1, "too far"))
    fixed: int = setting("no choice", default=7, init=False)
    recent: bool = setting("later", default=False, added=True)


def make(**options):
    return Example(nn.Linear(2, 2), steps=4, select="all", **options)


def test_attributes_and_plain_data():
    method = make(size=5, rewind=False)
    assert (method.size, method.kind, method.rewinds, method.fixed) == (5, "a", False, 7)
    assert method.settings == {
        "steps": 4, "select": "all", "exclude": None, "rewind_step": 0, "rewind": False,
        "freeze_weights": False, "size": 5, "kind": "a", "limit": None, "fixed": 7, "recent": False,
    }  # fmt: skip
    assert make().rewinds, "a plain value in a subclass is the default"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"size": 0}, "size=0: sizes are positive"),
        ({"size": "large"}, "size=large: sizes are positive"),
        ({"kind": "c"}, "kind='c' is not 'a' or 'b'"),
        ({"limit": 2.0}, r"limit=2\.0: too far"),
        ({"rewind_step": 9}, "rewind_step=9 is not between 0 and the 4 steps"),
        ({"rewind_step": None}, "rewind=True needs a rewind_step"),
    ],
)
def test_checks_come_before_anything_is_attached(bad, message):
    model = nn.Linear(2, 2)
    with pytest.raises(prunus.SettingError, match=message):
        Example(model, **{"steps": 4, **bad})
    assert list(model.state_dict()) == ["weight", "bias"]


def test_unknown_and_missing_settings_are_errors():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sise'"):
        make(sise=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fixed'"):
        make(fixed=3)
    with pytest.raises(TypeError, match="missing a required argument: 'steps'"):
        Example(nn.Linear(2, 2))


def test_descriptions():
    described = {s.name: s for s in describe_settings(Example)}
    assert list(described) == [
        "steps", "select", "exclude", "rewind_step", "rewind", "size", "kind", "limit", "recent",
    ]  # fmt: skip
    assert described["steps"].default is REQUIRED
    assert described["rewind"].default is True
    assert described["size"].help == "how large" and described["size"].type is int
    assert described["kind"].choices == ("a", "b") and not described["size"].choices
    assert described["recent"].added and not described["size"].added


@pytest.mark.parametrize("method", prunus.METHODS.values(), ids=prunus.METHODS)
def test_every_setting_has_a_help_text(method):
    described = describe_settings(method)
    assert all(s.help for s in described)
    assert len({s.name for s in described}) == len(described)


def test_settings_of_the_optimiser_are_described_too():
    described = {s.name: s for s in describe_settings(prunus.ContinuousSparsification)}
    assert described["score_lr"].of_optimiser and described["score_lr"].default is None
    assert not described["mask_init"].of_optimiser


def test_help_shows_the_signature():
    parameters = inspect.signature(prunus.MagnitudePruning).parameters
    shared = ["model", "steps", "select", "exclude", "rewind_step"]
    own = ["target_density", "target_macs", "granularity", "scope"]
    assert list(parameters) == [*shared, *own]
    assert parameters["target_density"].default == 0.1


def test_the_name_is_where_the_class_is_unless_it_says_otherwise():
    assert Example.name == f"{__name__}:Example"
    assert prunus.MagnitudePruning.name == "mp"
