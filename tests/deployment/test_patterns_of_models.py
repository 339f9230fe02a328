"""Models that follow a pattern N:M, and what PyTorch makes of them."""

import pytest
import torch
from torch import nn

import prunus
from prunus import SettingError
from prunus.deployment import check_pattern


def test_by_hand():
    model = nn.Sequential(nn.Linear(4, 2), nn.Conv2d(4, 1, 1), nn.Linear(3, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 0.0, 0.0]]))
        model[1].weight.copy_(torch.tensor([1.0, 1.0, 1.0, 0.0]).view(1, 4, 1, 1))
    found = {"0.weight": True, "1.weight": False, "2.weight": False}
    assert check_pattern(model, "2:4") == found
    assert check_pattern(model, "3:4") == {**found, "1.weight": True}
    with pytest.raises(SettingError, match="pattern='half' is not N:M"):
        check_pattern(model, "half")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch has it for GPUs only")
def test_what_was_found_can_be_compressed():
    model = nn.Sequential(nn.Linear(128, 128)).half().cuda()
    method = prunus.MagnitudePruning(model, steps=1, select="all", granularity="2:4")
    method.harden()
    method.strip()
    x = torch.randn(128, 128, dtype=torch.half, device="cuda")
    expected = model(x)
    model[0].weight = nn.Parameter(torch.sparse.to_sparse_semi_structured(model[0].weight))
    torch.testing.assert_close(model(x), expected, atol=1e-2, rtol=1e-2)
