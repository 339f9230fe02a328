"""A search in the Trainer of transformers."""

import io
import logging

import pytest
import torch
from torch.utils.data import Dataset

import prunus

transformers = pytest.importorskip("transformers")

from prunus.integrations.transformers import SparsifyCallback  # noqa: E402

# Its progress bars and reports are not for tests.
QUIET = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}


class Counting(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = (torch.arange(8) + 3 * index) % 16
        return {"input_ids": tokens, "labels": tokens}


def build(seed=0, dropout=0.1):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    sizes |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def trainer(folder, callback, model=None, optimizer=None, **arguments):
    settings = {"max_steps": 12, "per_device_train_batch_size": 8, "learning_rate": 1e-2}
    args = transformers.TrainingArguments(str(folder), **{**QUIET, **settings, **arguments})
    data = Counting()
    return transformers.Trainer(
        model or build(), args, train_dataset=data, eval_dataset=data, callbacks=[callback],
        optimizers=(optimizer, None),
    )  # fmt: skip


def nonzero(model):
    weights = [m.weight for m in model.modules() if type(m).__name__ == "Conv1D"]
    return sum(int(w.count_nonzero()) for w in weights) / sum(w.numel() for w in weights)


def test_two_lines_end_with_a_plain_model_and_its_ticket(tmp_path):
    loop = trainer(
        tmp_path, SparsifyCallback(target_density=0.25), logging_steps=4, eval_steps=6,
        eval_strategy="steps",
    )  # fmt: skip
    loop.train()
    assert type(loop.model) is transformers.GPT2LMHeadModel
    assert nonzero(loop.model) == pytest.approx(0.25, abs=1e-3)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    ticket = prunus.Ticket.from_pretrained(tmp_path)
    applied = prunus.strip(ticket.apply(build(seed=1)))
    tokens = torch.arange(8)[None]
    expected = loop.model.eval()(tokens).logits
    assert torch.equal(loaded.eval()(tokens).logits, expected)
    assert torch.equal(applied.eval()(tokens).logits, expected)
    assert ticket.manifest.settings["steps"] == 12  # those of the trainer
    assert "25.0" in (tmp_path / "README.md").read_text()
    assert "sparsity_config" not in (tmp_path / "config.json").read_text()
    logged = [entry for entry in loop.state.log_history if "loss" in entry]
    assert [set(e) >= {"density", "in_transition_per_kept"} for e in logged] == [True] * 3
    assert logged[-1]["density"] == pytest.approx(0.25, abs=1e-3)
    # The evaluation at the last step was that of the binary mask, and so is one afterwards.
    last = [e["eval_loss"] for e in loop.state.log_history if "eval_loss" in e][-1]
    assert loop.evaluate()["eval_loss"] == pytest.approx(last, rel=1e-5)


def by_hand(model, steps, **settings):
    """The same search in a loop of our own."""
    method = prunus.ContinuousSparsification(model, steps=steps, **settings)
    optimizer = torch.optim.SGD(method.param_groups(0.1))
    batch = {n: torch.stack([Counting()[i][n] for i in range(32)]) for n in ("input_ids", "labels")}
    for _ in range(steps):
        # Divided by the number of tokens, as the Trainer does, and not averaged.
        model.train()(**batch, num_items_in_batch=torch.tensor(32 * 8.0)).loss.backward()
        method.regularize()
        optimizer.step()
        optimizer.zero_grad()
        method.step()
    return method


def test_it_finds_what_a_loop_by_hand_finds(tmp_path):
    settings = {"target_density": 0.3, "select": "linear", "rewind_step": None, "penalty": 1e-5}
    told = by_hand(build(dropout=0.0), 30, **settings)
    told.strip()
    model = build(dropout=0.0)
    loop = trainer(
        tmp_path, SparsifyCallback(**settings), model, optim="sgd", learning_rate=0.1, max_steps=30,
        max_grad_norm=0.0, lr_scheduler_type="constant", per_device_train_batch_size=32,
        train_sampling_strategy="sequential",
    )  # fmt: skip
    loop.train()  # with an optimiser that holds the scores as well, which are not its business
    for name, weight in told.model.named_parameters():
        assert torch.equal(weight, model.get_parameter(name)), name


@pytest.mark.parametrize("attached", [False, True])
def test_a_resumed_training_has_the_same_bits(tmp_path, attached):
    def make(folder):
        model = build()
        callback = SparsifyCallback(target_density=0.25)
        if attached:  # with weights to rewind to, which a checkpoint has to hold, and tied ones
            cs = prunus.ContinuousSparsification(
                model, steps=12, target_density=0.25, select="all", rewind_step=2
            )
            assert "transformer.wte.weight" in cs.gates
            callback = SparsifyCallback(cs)
        return trainer(folder, callback, model, save_strategy="steps", save_steps=5)

    make(tmp_path / "whole").train()
    first = make(tmp_path / "halves")

    class Stop(transformers.TrainerCallback):
        def on_save(self, *_, **__):
            raise KeyboardInterrupt

    first.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        first.train()
    make(tmp_path / "halves").train(resume_from_checkpoint=True)
    for file in ("model.safetensors", "ticket.safetensors"):
        whole, halves = ((tmp_path / name / file).read_bytes() for name in ("whole", "halves"))
        assert whole == halves, file


def test_a_checkpoint_whose_tensors_are_of_another_training_is_refused(tmp_path):
    def make():
        model = build()
        cs = prunus.ContinuousSparsification(model, steps=12, select="linear", target_density=0.5)
        return trainer(tmp_path, SparsifyCallback(cs), model, save_strategy="steps", save_steps=6)

    make().train()
    (tmp_path / "checkpoint-6" / "prunus.safetensors").write_bytes(b"other")
    with pytest.raises(prunus.AttachError, match=r"checkpoint-6/prunus.safetensors is missing, or"):
        make().train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))


def refused(folder, cls=transformers.GPT2LMHeadModel):
    """What loading says, which must fail."""
    said, logger = io.StringIO(), logging.getLogger("transformers")
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    try:
        with pytest.raises(RuntimeError, match="look at the above report"):
            cls.from_pretrained(folder)
    finally:
        logger.removeHandler(handler)
    return said.getvalue()


@pytest.mark.parametrize("select", ["linear", "all"])  # without and with the tied weights
def test_a_checkpoint_of_a_search_is_not_taken_for_a_model(tmp_path, select):
    callback = SparsifyCallback(target_density=0.25, select=select)
    loop = trainer(tmp_path, callback, save_strategy="steps", save_steps=6)
    loop.train()
    first = "transformer.wte.weight" if select == "all" else "transformer.h.0.attn.c_attn.weight"
    says = f"{first} (has a gate of Prunus: resume from this checkpoint, or strip() the model"
    assert says in refused(tmp_path / "checkpoint-6")
    refused(tmp_path / "checkpoint-6", transformers.GPT2Model)
    refused(tmp_path / "checkpoint-6", transformers.AutoModelForCausalLM)
    # At the end there is no trace of it.
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert list(loop.model.state_dict()) == list(build().state_dict())
    assert loaded.lm_head.weight is loaded.transformer.wte.weight


def test_a_model_under_a_mask_is_saved_as_no_model_either(tmp_path):
    model = build()
    cs = prunus.ContinuousSparsification(model, steps=1, select="linear")
    mask = cs.mask()
    cs.remove()
    mask.apply(model).save_pretrained(tmp_path / "masked")
    refused(tmp_path / "masked")
    twin = mask.apply(build(seed=1))
    twin.load_state_dict(model.state_dict())
    prunus.strip(twin).save_pretrained(tmp_path / "plain")
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "plain")
    for name, weight in prunus.strip(model).named_parameters():
        assert torch.equal(loaded.get_parameter(name), weight), name


def test_other_methods_and_fine_tuning_of_a_fixed_mask(tmp_path):
    trainer(
        tmp_path / "gmp", SparsifyCallback(prunus.GradualMagnitudePruning, target_density=0.1)
    ).train()
    assert prunus.Ticket.from_pretrained(tmp_path / "gmp").mask.density == pytest.approx(
        0.1, abs=1e-3
    )
    model = build()
    mp = prunus.MagnitudePruning(model, steps=1, target_density=0.2, select="linear")
    mask = mp.harden()
    loop = trainer(tmp_path / "mp", SparsifyCallback(mp), model)
    loop.train()
    assert prunus.Ticket.from_pretrained(tmp_path / "mp").mask == mask
    assert nonzero(loop.model) == pytest.approx(0.2, abs=1e-3)


def test_scores_for_the_optimiser_need_a_group_of_their_own(tmp_path):
    def attach(model):
        return prunus.L0Regularisation(model, steps=12, select="linear", rule="expected")

    model = build()
    with pytest.raises(prunus.SettingError, match=r"l0 needs an optimiser that has its scores"):
        trainer(tmp_path, SparsifyCallback(attach(model)), model).train()
    model = build()
    l0 = attach(model)
    optimizer = torch.optim.AdamW(l0.param_groups(1e-2, score_lr=0.1))
    trainer(tmp_path, SparsifyCallback(l0), model, optimizer).train()
    assert prunus.Ticket.from_pretrained(tmp_path).manifest.method == "l0"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"},
            "load_best_model_at_end=True would bring back the gates of an earlier step",
        ),
        (
            {"restore_callback_states_from_checkpoint": True},
            "restore_callback_states_from_checkpoint=True would make this callback anew",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_training(tmp_path, arguments, says):
    model = build()
    with pytest.raises(prunus.SettingError, match=says):
        trainer(tmp_path, SparsifyCallback(target_density=0.1), model, **arguments)
    prunus.ContinuousSparsification(model, steps=1, select="linear")  # nothing was attached


@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED"])
def test_what_takes_parameters_apart_is_refused(tmp_path, monkeypatch, kind):
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    loop = trainer(tmp_path, transformers.TrainerCallback())
    kinds = PartialState._shared_state  # neither works on a CPU, so it is only said to be on
    monkeypatch.setitem(kinds, "distributed_type", DistributedType[kind])
    callback = SparsifyCallback(target_density=0.1)
    with pytest.raises(prunus.SettingError, match="FSDP and DeepSpeed take parameters apart"):
        callback.on_init_end(loop.args, loop.state, loop.control, model=loop.model)
    prunus.ContinuousSparsification(loop.model, steps=1, select="linear")  # nothing was attached


def test_fsdp_is_refused_where_accelerate_would_ignore_it(tmp_path):
    loop = trainer(tmp_path, transformers.TrainerCallback())
    loop.args.fsdp = True  # as in several processes of CPUs, which would train under DDP instead
    callback = SparsifyCallback(target_density=0.1)
    with pytest.raises(prunus.SettingError, match="FSDP and DeepSpeed take parameters apart"):
        callback.on_init_end(loop.args, loop.state, loop.control, model=loop.model)


def test_steps_that_the_training_does_not_reach_are_refused(tmp_path):
    with pytest.raises(prunus.SettingError, match=r"steps=13 are more than the 12 steps"):
        trainer(tmp_path, SparsifyCallback(target_density=0.1, steps=13)).train()
    model = build()
    cs = prunus.ContinuousSparsification(model, steps=5, select="linear")
    with pytest.raises(prunus.SettingError, match=r"mask_init: the method is attached already"):
        SparsifyCallback(cs, mask_init=0.1)


def test_a_second_training_needs_a_new_callback(tmp_path):
    loop = trainer(tmp_path, SparsifyCallback(target_density=0.1))
    loop.train()
    with pytest.raises(prunus.AttachError, match="search of this callback has ended"):
        loop.train()
