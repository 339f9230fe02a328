"""The examples for loops of others that need more than a Python with our packages."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import prunus
from support.processes import run
from test_docs import blocks

PAGE = Path(__file__).parents[2] / "docs" / "loops.md"


def example(tag):
    [code] = [code for _, info, code in blocks(PAGE) if info == f"{{.python .{tag}}}"]
    return code


def create_optimizer_v2(model, opt, lr, weight_decay, param_group_fn):
    """As that of timm 1.0, which needs torchvision: groups have the defaults for what they lack."""
    assert opt == "adamw"
    return torch.optim.AdamW(param_group_fn(model), lr=lr, weight_decay=weight_decay)


def test_timm(monkeypatch):
    timm = SimpleNamespace(create_optimizer_v2=create_optimizer_v2)
    monkeypatch.setitem(sys.modules, "timm.optim", timm)
    script = {}
    exec(example("timm"), script)
    cs, model, optimizer = (script[name] for name in ("cs", "model", "optimizer"))
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for _ in range(script["num_epochs"] * script["updates_per_epoch"]):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert cs.t == cs.steps
    assert cs.mask().density == pytest.approx(0.1, abs=1e-3)
    validated = model.eval()(x)
    assert torch.equal(cs.strip().train()(x), validated)


def test_a_state_of_accelerate_brings_gates_back(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    from test_transformers_callback import build

    def prepare(seed):
        model = build(seed)  # with tied embeddings
        cs = prunus.ContinuousSparsification(model, steps=4, select="all", target_density=0.5)
        accelerator = accelerate.Accelerator(cpu=True)
        optimizer = torch.optim.AdamW(cs.param_groups(lr=1e-2))
        cs.follow(optimizer)
        return accelerator, cs, *accelerator.prepare(model, optimizer)

    tokens = torch.arange(8)[None]
    accelerator, cs, model, optimizer = prepare(0)
    for _ in range(4):
        accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state(str(tmp_path))
    accelerator, twin, copied, _ = prepare(1)
    accelerator.load_state(str(tmp_path))
    assert twin.mask() == cs.mask()
    assert torch.equal(copied.eval()(tokens).logits, model.eval()(tokens).logits)


def test_torchrun(tmp_path):
    (tmp_path / "train.py").write_text(example("torchrun"))
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    run(*launch, "train.py", cwd=tmp_path)
    tickets = [prunus.Ticket.load(f) for f in sorted(tmp_path.glob("rank-*.ticket.safetensors"))]
    assert len(tickets) == 2 and tickets[0] == tickets[1]
    assert tickets[0].mask.density == pytest.approx(0.1, abs=1e-3)
