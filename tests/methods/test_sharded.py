"""Continuous Sparsification of a model that two processes share out (`fully_shard`)."""

import warnings

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import prunus
from support.processes import found_by_two

x = torch.randn(8, 4, 8, generator=torch.Generator().manual_seed(1))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def build():
    """Layers of 7, 5 and 1 rows: two processes have unequal parts, and one has none of the last.

    The first is used for four vectors of each sample, the others for one.
    """
    torch.manual_seed(0)
    first, second, last = nn.Linear(8, 7), nn.Linear(7, 5), nn.Linear(5, 1)
    return nn.Sequential(first, nn.ReLU(), Mean(), second, nn.ReLU(), last)


def search(shard, select="all", policy=None, **settings):
    model = build()
    cs = prunus.ContinuousSparsification(
        model, steps=6, select=select, penalty=1e-3, rewind_step=2, **settings
    )
    if shard:
        for part in (model[0], model[3], model[5], model):
            fully_shard(part, mp_policy=policy or MixedPrecisionPolicy())
    optimizer = torch.optim.SGD(cs.param_groups(0.1), momentum=0.9)

    def train(steps):
        for _ in range(steps):
            (model(x).square().mean() + cs.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()

    train(6)
    masks = [cs.end_round()]
    train(6)
    masks.append(cs.harden())
    train(2)
    tickets = [cs.ticket(), cs.ticket("current")]
    output = model(x).detach()
    return {
        "masks": [dict(mask) for mask in masks],
        "weights": [dict(ticket.weights) for ticket in tickets],
        "density": cs.stats().hard_density,
        "output": output,
    }, cs


SETTINGS = {
    "density": {"target_density": [0.6, 0.3]},
    "layer": {"target_density": 0.4, "scope": "layer"},
    "macs": {"target_macs": 0.3},
    "both": {"target_macs": 0.3, "target_density": 0.35},
    "pattern": {"granularity": "2:4", "select": "0.weight"},
    "no budget": {"mask_init": 0.3},
}


def refused(action):
    try:
        action()
    except prunus.AttachError as error:
        return str(error)
    return ""


def worker(rank):  # noqa: ARG001 (both do the same)
    found = {}
    for name, settings in SETTINGS.items():
        found[name], cs = search(True, **settings)
    half = search(True, target_density=0.3, policy=MixedPrecisionPolicy(torch.bfloat16))[0]
    found["16 bits"] = half["density"]
    sharded = build()
    fully_shard(sharded)
    late = refused(lambda: prunus.ContinuousSparsification(sharded, steps=1, select="all"))
    return (found, late, refused(cs.strip))


def close(ours, theirs):
    """Equal but for the order of sums."""
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_two_processes_find_what_one_finds():
    ranks = found_by_two(worker)
    with warnings.catch_warnings():  # so short a search leaves gates in transition
        warnings.simplefilter("ignore", prunus.PrunusWarning)
        expected = {name: search(False, **settings)[0] for name, settings in SETTINGS.items()}
    for found, late, strip in ranks:
        assert "attach first, then call fully_shard" in late
        assert "take ticket('current')" in strip
        assert found["16 bits"] == expected["density"]["density"]
        for name, alone in expected.items():
            for ours, theirs in zip(found[name]["masks"], alone["masks"], strict=True):
                assert prunus.Mask(ours) == prunus.Mask(theirs), name
            close(found[name]["weights"], alone["weights"])
            assert found[name]["density"] == alone["density"]
            close(found[name]["output"], alone["output"])
