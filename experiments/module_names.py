"""A task for an encoder: which package of Python's library is this text from?

The text is the source of some packages of the standard library, as words; a sample is 32 of them.
It needs no download, and is the same wherever Python is (of the same version).
"""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

from prunus.tasks import RECIPES, Task
from prunus.tasks.data import DataOptions
from prunus.tasks.data.tensors import tensor_data
from prunus.tasks.networks.vit import Block

PACKAGES = ("asyncio", "ctypes", "email", "http", "importlib", "logging", "multiprocessing", "xml")
LENGTH, VOCABULARY = 32, 1000


class Encoder(nn.Module):
    """Words (batch, length) to logits of the classes, by the mean over all positions."""

    def __init__(self, *, classes: int, width: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY + 1, width)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        x = self.blocks(self.words(words) + self.positions)
        logits: Tensor = self.head(self.norm(x).mean(dim=1))
        return logits


def module_names(width: int = 64, *, depth: int = 2, test_samples: int = 1500) -> Task:
    """The 1,000 most frequent words have numbers, all others share one; 4,000 samples to train."""
    library = Path(sysconfig.get_path("stdlib"))
    texts = [
        [
            word
            for file in sorted((library / package).rglob("*.py"))
            if "test" not in file.parts
            for word in re.findall(r"[a-z]+", file.read_text("utf-8", "replace").lower())
        ]
        for package in PACKAGES
    ]
    frequent = Counter(word for words in texts for word in words).most_common(VOCABULARY)
    numbers = {word: n for n, (word, _) in enumerate(frequent, start=1)}
    windows, labels = [], []
    for label, words in enumerate(texts):
        known = torch.tensor([numbers.get(word, 0) for word in words])
        windows.append(known[: len(known) // LENGTH * LENGTH].view(-1, LENGTH))
        labels.append(torch.full((len(windows[-1]),), label))
    every = torch.cat(windows), torch.cat(labels)
    order = torch.randperm(len(every[0]), generator=torch.Generator().manual_seed(0))
    some = order[: 4500 + test_samples]
    samples = every[0][some], every[1][some]
    data = tensor_data(samples, DataOptions(), validation_samples=500, test_samples=test_samples)
    build = lambda: Encoder(classes=len(PACKAGES), width=width, depth=depth)  # noqa: E731
    return Task("python/encoder", data, build, RECIPES["tickets"])
