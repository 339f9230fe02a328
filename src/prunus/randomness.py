"""Randomness: seeds made from keys, and the state of every generator that training uses."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_for(*key: int) -> int:
    """A well-mixed seed from a key such as (seed, epoch), the same on every machine."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def generator_for(*key: int) -> torch.Generator:
    """A CPU generator that depends on the key alone, whatever the training device."""
    return torch.Generator().manual_seed(seed_for(*key))


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """The state of all generators, as tensors and plain data."""
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    inner = dict(numpy_state["state"])
    inner["key"] = torch.from_numpy(inner["key"].astype(np.int64))
    return {
        "python": random.getstate(),
        "numpy": {**numpy_state, "state": inner},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Set all generators to what `random_state` gave."""
    random.setstate(state["python"])
    inner = dict(state["numpy"]["state"])
    inner["key"] = inner["key"].numpy().astype(np.uint32)
    np.random.set_state({**state["numpy"], "state": inner})
    torch.set_rng_state(state["torch"])
    # A run may be resumed on a machine with another number of GPUs.
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
