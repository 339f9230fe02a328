"""Encoders and decoders of the library `transformers`, deployed without fallback."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import prunus
from prunus_runtime import load
from support.deployable import randomised
from support.native_paths import ISAS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(not ISAS, reason="the native core is not compiled")


class Picked(nn.Module):
    """One output of a model that has several; tokens 0 are padding, if the model is told so."""

    def __init__(self, model: nn.Module, name: str, masked: bool = False) -> None:
        super().__init__()
        self.model, self.name, self.masked = model, name, masked

    def forward(self, tokens: Tensor) -> Tensor:
        mask = {"attention_mask": (tokens != 0).long()} if self.masked else {}
        return getattr(self.model(input_ids=tokens, **mask), self.name)


def bert(output: str, attention: str = "sdpa", masked: bool = False) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=30,
        attn_implementation=attention,
    )
    return Picked(transformers.BertModel(config), output, masked)


def gpt2(attention: str = "sdpa", masked: bool = False) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=50,
        n_embd=24,
        n_layer=2,
        n_head=4,
        n_positions=30,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
    )
    return Picked(transformers.GPT2LMHeadModel(config), "logits", masked)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bert("last_hidden_state"),
        lambda: bert("pooler_output"),
        lambda: bert("last_hidden_state", "eager"),
        gpt2,
        lambda: gpt2("eager"),
        lambda: bert("last_hidden_state", masked=True),
        lambda: bert("last_hidden_state", "eager", masked=True),
        lambda: gpt2(masked=True),
        lambda: gpt2("eager", masked=True),
    ],
    ids=[
        *("bert", "bert pooled", "bert eager", "gpt2", "gpt2 eager"),
        *("bert masked", "bert eager masked", "gpt2 masked", "gpt2 eager masked"),
    ],
)
@torch.no_grad()
def test_they_run_natively_at_any_length(make, tmp_path) -> None:
    torch.manual_seed(0)
    model = randomised(make(), 0.3).eval()
    tokens = torch.randint(1, 50, (17, 20))
    for row, end in enumerate(range(20, 3, -1)):  # each shorter than the one before
        tokens[row, end:] = 0
    deployed = prunus.deploy(model, None, tokens)
    assert not deployed.fallback
    kinds = [operation.kind for operation in deployed.graph.operations]
    assert kinds.count("embedding") == 1 + model.masked  # all layers share the mask
    assert kinds.count("attention") == 2 and "multiply" not in kinds  # GELU, however it is spelled
    network = load(deployed.save(tmp_path / "model.prunus"))
    for count, length in ((1, 20), (17, 20), (3, 7), (2, 1)):
        x = tokens[:count, :length]
        expected = model(x).numpy()
        found = network(x.numpy())
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
