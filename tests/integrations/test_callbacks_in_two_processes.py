"""Callbacks in two processes, with a copy of the model each (DDP) or with parts of one."""

import os
from functools import partial

import pytest
import torch
import torch.distributed as dist

import prunus
from support.processes import found_by_two

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


def in_lightning_shared_out(folder):
    import test_lightning as alone
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard

    class SharedOut(alone.Module):
        def configure_model(self):
            for part in (self.network[0], self.network[2], self.network):
                fully_shard(part, mesh=self.device_mesh["data_parallel"])

        def configure_optimizers(self):
            named = self.named_parameters()
            return torch.optim.AdamW([p for n, p in named if not n.endswith(".score")], lr=1e-2)

    class WithScores(SharedOut):
        configure_optimizers = alone.Module.configure_optimizers

    def fit(folder, cls=SharedOut, checkpoint=None):
        torch.manual_seed(0)
        module, strategy = cls(), ModelParallelStrategy(2, 1)
        callback = alone.SparsifyCallback(target_density=0.2, select="linear")
        loop = alone.trainer(
            folder, callback, strategy=strategy, devices=2, plugins=[LightningEnvironment()],
            enable_checkpointing=True, max_epochs=3,
        )  # fmt: skip
        loop.callbacks.append(ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1))
        loop.fit(module, alone.data(), ckpt_path=checkpoint)
        return module

    with pytest.raises(prunus.SettingError, match=r"names do not end in '.score'"):
        fit(f"{folder}/refused", WithScores)
    module = fit(folder)
    fit(f"{folder}/resumed", checkpoint=f"{folder}/epoch=1.ckpt")
    dist.barrier()
    whole, resumed = (prunus.Ticket.from_pretrained(f) for f in (folder, f"{folder}/resumed"))
    assert whole == resumed
    plain = prunus.strip(whole.apply(alone.build()))
    x = alone.data().dataset.tensors[0]
    torch.testing.assert_close(module.network(x), plain.network(x))
    return plain


def worker(folder, rank):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in place.items()}
    found = {}
    for train in (in_transformers, in_lightning, in_lightning_shared_out):
        model = train(f"{folder}/{train.__name__}")
        dist.barrier()  # the first process writes the ticket
        mask = prunus.Ticket.from_pretrained(f"{folder}/{train.__name__}").mask
        found[train.__name__] = model.state_dict(), dict(mask)
    return found


@pytest.mark.parametrize(
    ("trainer", "density"),
    [("in_transformers", 0.25), ("in_lightning", 0.2), ("in_lightning_shared_out", 0.2)],
)
def test_both_end_with_the_same_weights_and_the_density(ranks, trainer, density):
    [first, mask], [second, _] = (found[trainer] for found in ranks)
    assert prunus.Mask(mask).density == pytest.approx(density, abs=1e-3)
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name
    for name, kept in mask.items():
        assert torch.equal(first[name] != 0, kept), name


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return found_by_two(partial(worker, str(tmp_path_factory.mktemp("trained"))))
