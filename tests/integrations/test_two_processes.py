"""Callbacks in two processes with a copy of the model each (DDP): both find the same."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import prunus
from support.processes import SECONDS, found_by_two

pytest.importorskip("transformers")
pytest.importorskip("lightning")


def in_transformers(folder):
    import test_transformers_callback as alone

    callback = alone.SparsifyCallback(target_density=0.25, penalty=1e-5)
    loop = alone.trainer(
        folder, callback, ddp_backend="gloo", per_device_train_batch_size=4, save_strategy="steps",
        save_steps=6,
    )  # fmt: skip
    loop.train()
    assert loop.accelerator.num_processes == 2
    return loop.model


def in_lightning(folder):
    import test_lightning as alone
    from lightning.pytorch.plugins.environments import LightningEnvironment

    module = alone.build()
    callback = alone.SparsifyCallback(target_density=0.2, select="linear", penalty=1e-5)
    loop = alone.trainer(
        folder, callback, strategy="ddp", devices=2, plugins=[LightningEnvironment()]
    )
    loop.fit(module, alone.data())
    assert loop.world_size == 2
    return module


def worker(rank, folder):
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in place.items()}
    store = f"file://{folder}/store"
    dist.init_process_group(
        "gloo", store, rank=rank, world_size=2, timeout=timedelta(seconds=SECONDS)
    )
    found = {}
    for train in (in_transformers, in_lightning):
        model = train(f"{folder}/{train.__name__}")
        dist.barrier()  # the first process writes the ticket
        mask = prunus.Ticket.from_pretrained(f"{folder}/{train.__name__}").mask
        found[train.__name__] = model.state_dict(), dict(mask)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize(("trainer", "density"), [("in_transformers", 0.25), ("in_lightning", 0.2)])
def test_both_end_with_the_same_weights_and_the_density(ranks, trainer, density):
    [first, mask], [second, _] = (found[trainer] for found in ranks)
    assert prunus.Mask(mask).density == pytest.approx(density, abs=1e-3)
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name
    for name, kept in mask.items():
        assert torch.equal(first[name] != 0, kept), name


@pytest.fixture(scope="module")
def ranks():
    return found_by_two(worker)
