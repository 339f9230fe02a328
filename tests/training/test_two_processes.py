"""Two gloo processes train like one."""

from pathlib import Path

import pytest
import torch

from prunus import Mask
from support.processes import run

PROGRAM = Path(__file__).parents[1] / "support/two_processes.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ddp")
    for devices in (1, 2):
        run(PROGRAM, folder, devices)
    return {path.stem: torch.load(path) for path in folder.glob("*.pt")}


def masks(content):
    return [Mask(mask) for mask in content["masks"]]


def test_both_processes_have_the_same_masks_and_weights(found):
    first, second = found["2-0"], found["2-1"]
    assert masks(first) == masks(second)
    assert all(0 < mask.density < 1 for mask in masks(first))
    for kind in ("weights", "rewind", "computed"):
        assert all(torch.equal(first[kind][n], second[kind][n]) for n in first[kind])


def test_removed_weights_are_zero_in_both(found):
    for content in (found["2-0"], found["2-1"]):
        final = masks(content)[-1]
        for name, weight in content["computed"].items():
            assert not weight[~final[name]].any()
            assert weight[final[name]].all()


def test_two_processes_equal_one_with_the_same_global_batch(found):
    one, two = found["1-0"], found["2-0"]
    assert masks(one) == masks(two)
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
    assert two["accuracy"] == one["accuracy"]
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, atol=1e-5, rtol=1e-4)


def test_what_processes_tell_each_other(found):
    for rank in (0, 1):
        content = found[f"2-{rank}"]
        assert content["rank"] == rank and content["highest"] == 1
        assert content["gathered"] == ["rank 0", "rank 1"]
        assert content["from_main"] == "rank 0"
        assert content["first"] == "rank 1" and content["none"] is None
        assert content["meets"] == [10, 20, 30]
    assert found["1-0"]["meets"] == list(range(1, 31))
