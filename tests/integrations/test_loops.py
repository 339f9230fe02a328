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


def test_torchrun(tmp_path):
    (tmp_path / "train.py").write_text(example("torchrun"))
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    run(*launch, "train.py", cwd=tmp_path)
    tickets = [prunus.Ticket.load(f) for f in sorted(tmp_path.glob("rank-*.ticket.safetensors"))]
    assert len(tickets) == 2 and tickets[0] == tickets[1]
    assert tickets[0].mask.density == pytest.approx(0.1, abs=1e-3)
