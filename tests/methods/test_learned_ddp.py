"""Methods that draw or learn masks, in two processes: each draws its own while training, and both
find the same mask."""

import torch
from test_methods import METHODS
from torch.nn.parallel import DistributedDataParallel

from prunus import L0Regularisation, Mask
from support.models import ConvNet
from support.processes import found_by_two

NAMES = [
    "iss",
    "netslim",
    "l0",
    "str",
    "dnw",
    "rigl",
    "acdc",
    "feather",
    "snip",
    "synflow",
    "wanda",
]


def worker(rank):
    found = {}
    for name in [*NAMES, "l0 samples"]:
        torch.manual_seed(0)
        model = ConvNet()
        torch.manual_seed(rank)  # other data, and other masks while training
        make = METHODS.get(name, lambda model: L0Regularisation(model, steps=6, samples=4))
        method = make(model)
        ddp = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(method.param_groups(0.1), momentum=0.9)
        masks = []
        for _ in range(2):
            for _ in range(6):
                batch = torch.randn(4, 2, 5, 5)
                (ddp(batch).square().mean() + method.penalty()).backward()
                optimizer.step()
                optimizer.zero_grad()
                method.step()
            # What both measure is the same: a task reduces its accuracy over the processes.
            masks.append(
                dict(method.end_round(lambda model=model: model.conv1.weight.norm().item()))
            )
        learned = [p.detach().clone() for g in method.gates.values() for p in g.parameters()]
        found[name] = masks, learned
    return found


def test_two_processes_find_the_same_masks():
    one, two = found_by_two(worker)
    for name, (masks, learned) in one.items():
        for ours, theirs in zip(masks, two[name][0], strict=True):
            assert Mask(ours) == Mask(theirs), name
            assert 0 < Mask(ours).density < 1, name
        for ours, theirs in zip(learned, two[name][1], strict=True):
            assert torch.equal(ours, theirs), name
