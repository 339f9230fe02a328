"""A search that is killed again and again ends like one that was left alone, bit for bit."""

import json
from dataclasses import replace
from pathlib import Path

import torch

from prunus import Ticket
from support.processes import run


def content(ticket):
    return ticket.mask, dict(ticket.weights), replace(ticket.manifest, created="")


def test_killed_at_twenty_moments(tmp_path):
    program = Path(__file__).parents[1] / "support/killing.py"
    moments = json.loads(run(program, tmp_path, 0))
    assert len(moments) == 20
    assert moments[0] < 10 and moments[-1] > 70
    [whole] = (tmp_path / "whole").iterdir()
    [killed] = (tmp_path / "killed").iterdir()
    for name in ("metrics.jsonl", "results.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    assert len((whole / "metrics.jsonl").read_text().splitlines()) == 8
    for name in ("round-1", "round-2"):
        ours, theirs = (
            Ticket.load(run / "tickets" / f"{name}.safetensors") for run in (whole, killed)
        )
        mask, weights, manifest = content(ours)
        other_mask, other_weights, other_manifest = content(theirs)
        assert mask == other_mask and 0 < mask.density < 1
        assert manifest == other_manifest
        assert weights.keys() == other_weights.keys()
        assert all(torch.equal(weights[n], other_weights[n]) for n in weights)
    assert len(list((killed / "checkpoints").iterdir())) == 2
