"""A search in the Trainer of Lightning."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import prunus
from prunus.errors import SearchWarning

lightning = pytest.importorskip("lightning")

from lightning.pytorch.callbacks import (  # noqa: E402
    EMAWeightAveraging,
    StochasticWeightAveraging,
)

from prunus.integrations.lightning import SparsifyCallback  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.groups = None

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("loss", self.training_step(batch, 0))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.groups or self.parameters(), lr=1e-2)


def data(**options):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 16, generator=generator)
    y = (x @ torch.randn(16, 4, generator=generator)).argmax(1)
    return DataLoader(TensorDataset(x, y), batch_size=16, **options)


def build():
    torch.manual_seed(0)
    return Module()


def trainer(folder, *callbacks, **options):
    defaults = {"max_epochs": 5, "log_every_n_steps": 2, "enable_checkpointing": False}
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger"), False)
    return lightning.Trainer(
        accelerator="cpu", default_root_dir=folder, callbacks=[*callbacks],
        **{**defaults, **quiet, **options},
    )  # fmt: skip


def kept(module):
    weights = [m.weight for m in module.modules() if isinstance(m, nn.Linear)]
    return sum(int(w.count_nonzero()) for w in weights) / sum(w.numel() for w in weights)


def test_one_callback_ends_with_a_plain_module_and_its_ticket(tmp_path):
    module = build()
    loop = trainer(tmp_path, SparsifyCallback(target_density=0.2, select="linear"))
    loop.fit(module, data(), data())
    assert kept(module) == pytest.approx(0.2, abs=1e-3)
    assert loop.callback_metrics["density"] == pytest.approx(0.2, abs=1e-3)
    x = data().dataset.tensors[0]
    expected = module.network(x)
    loaded = Module.load_from_checkpoint(tmp_path / "sparse.ckpt")
    assert torch.equal(loaded.network(x), expected)
    ticket = prunus.Ticket.from_pretrained(tmp_path)
    assert ticket.manifest.settings["steps"] == 20  # those of the trainer
    applied = prunus.strip(ticket.apply(Module()))
    assert torch.equal(applied.network(x), expected)
    # The last evaluation while fitting was that of the binary mask.
    during = float(loop.callback_metrics["loss"])
    [after] = loop.validate(module, data(), verbose=False)
    assert after["loss"] == pytest.approx(during, rel=1e-5)


def test_it_finds_what_a_loop_by_hand_finds(tmp_path):
    settings = {"target_density": 0.3, "select": "linear", "rewind_step": None, "penalty": 1e-3}
    by_hand = build()
    method = prunus.ContinuousSparsification(by_hand, steps=20, **settings)
    optimizer = torch.optim.AdamW(method.param_groups(1e-2))
    for _ in range(5):
        for batch in data():
            by_hand.training_step(batch, 0).backward()
            method.regularize()
            optimizer.step()
            optimizer.zero_grad()
            method.step()
    method.strip()
    module = build()  # whose optimiser holds the scores as well
    trainer(tmp_path, SparsifyCallback(**settings)).fit(module, data())
    for name, weight in by_hand.named_parameters():
        assert torch.equal(weight, module.get_parameter(name)), name


def test_a_module_that_comes_in_evaluation_mode_learns_its_mask_all_the_same(tmp_path):
    """As pretrained models do, and the Trainer leaves them in it: the network has no dropout."""
    found = []
    for module in (build(), build().eval()):
        callback = SparsifyCallback(target_density=0.3, select="linear")
        trainer(tmp_path, callback).fit(module, data(), data())
        found.append(module.network.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("rewind_step", [None, 3])
def test_a_resumed_fit_has_the_same_bits(tmp_path, rewind_step):
    from lightning.pytorch.callbacks import ModelCheckpoint

    def fit(folder, epochs, ckpt_path=None):
        settings = {"target_density": 0.2, "select": "linear", "rewind_step": rewind_step}
        loop = trainer(
            folder, SparsifyCallback(**settings), enable_checkpointing=True, max_epochs=5
        )
        loop.callbacks.append(ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1))
        if epochs < 5:

            class Stop(lightning.Callback):
                def on_train_epoch_start(self, trainer, _):
                    if trainer.current_epoch == epochs:
                        raise RuntimeError("the power fails")

            loop.callbacks.append(Stop())
        loop.fit(build(), data(), ckpt_path=ckpt_path)

    fit(tmp_path / "whole", 5)
    with pytest.raises(RuntimeError, match="the power fails"):
        fit(tmp_path / "halves", 2)
    fit(tmp_path / "halves", 5, tmp_path / "halves" / "epoch=1.ckpt")
    fit(tmp_path / "late", 5, tmp_path / "whole" / "epoch=4.ckpt")  # nothing is left to train
    whole = torch.load(tmp_path / "whole" / "sparse.ckpt")
    for name in ("halves", "late"):
        tickets = [prunus.Ticket.from_pretrained(tmp_path / n) for n in ("whole", name)]
        assert tickets[0] == tickets[1], name
        resumed = torch.load(tmp_path / name / "sparse.ckpt")
        for weight, tensor in whole["state_dict"].items():
            assert torch.equal(tensor, resumed["state_dict"][weight]), (name, weight)


def test_a_method_on_a_part_of_the_module(tmp_path):
    module = build()
    l0 = prunus.L0Regularisation(module.network, steps=20, select="linear", rule="expected")
    with pytest.raises(prunus.SettingError, match="l0 needs an optimiser that has its scores in a"):
        trainer(tmp_path, SparsifyCallback(l0)).fit(module, data())
    module.groups = l0.param_groups(1e-2, score_lr=0.1)
    trainer(tmp_path, SparsifyCallback(l0)).fit(module, data())
    assert set(prunus.Ticket.from_pretrained(tmp_path).mask) == {"0.weight", "2.weight"}


def test_a_fit_without_an_end_is_refused(tmp_path):
    loop = trainer(tmp_path, SparsifyCallback(target_density=0.2, select="linear"), max_epochs=-1)
    with pytest.raises(prunus.SettingError, match="the trainer does not know how many it makes"):
        loop.fit(build(), data())


def test_a_second_fit_needs_a_new_callback(tmp_path):
    module = build()
    loop = trainer(tmp_path, SparsifyCallback(target_density=0.2, select="linear"))
    loop.fit(module, data())
    with pytest.raises(prunus.AttachError, match="search of this callback has ended"):
        loop.fit(module, data())
    assert kept(module) == pytest.approx(0.2, abs=1e-3)


def test_an_average_that_would_be_of_a_copy_without_gates_is_refused(tmp_path):
    average = EMAWeightAveraging(decay=0.9)
    sparsify = SparsifyCallback(target_density=0.2, select="linear")
    module = build()
    with pytest.raises(prunus.SettingError, match="EMAWeightAveraging comes before"):
        trainer(tmp_path, average, sparsify).fit(module, data())
    loop = trainer(tmp_path, sparsify, average)
    with pytest.warns(SearchWarning, match="in transition"):  # of averages of scores
        loop.fit(module, data())
    assert kept(module) == pytest.approx(0.2, abs=1e-3)


def test_a_stochastic_average_is_of_a_copy_too(tmp_path):
    average = StochasticWeightAveraging(swa_lrs=0.01)
    sparsify = SparsifyCallback(target_density=0.2, select="linear")
    with pytest.raises(prunus.SettingError, match="StochasticWeightAveraging comes before"):
        trainer(tmp_path, average, sparsify).fit(build(), data())


@pytest.mark.parametrize("strategy", ["FSDPStrategy", "DeepSpeedStrategy"])
def test_strategies_that_take_parameters_apart_are_refused(strategy):
    from lightning.pytorch import strategies

    # A Trainer with one of these needs a GPU.
    loop = SimpleNamespace(strategy=object.__new__(getattr(strategies, strategy)))
    module = build()
    with pytest.raises(prunus.SettingError, match=f"{strategy} takes parameters apart"):
        SparsifyCallback(target_density=0.2, select="linear").setup(loop, module, "fit")
    prunus.ContinuousSparsification(module, steps=1, select="linear")  # nothing was attached
