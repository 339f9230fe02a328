"""Text as a sequence of characters, cut into windows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.randomness import generator_for
from prunus.tasks.data.errors import DamagedDataError, MissingDataError
from prunus.tasks.data.protocol import EpochPlan, LoaderOptions
from prunus.tasks.data.splits import DataOptions, SplitName

_DEFAULT_ROOT = "data"
_HELD_OUT = 0.05
"""The fraction of all windows for validation, and for the test."""


class TextBatches:
    """A `Loader` of windows of `context` characters, and for each the character that follows.

    With a `seed` it is for training: every epoch goes through the whole text, but the windows begin
    at another place and come in another order. Without a seed they come in order.
    """

    def __init__(
        self, tokens: Tensor, context: int, options: LoaderOptions, *, seed: int | None = None
    ) -> None:
        self._tokens, self._context, self._seed = tokens.to(options.device), context, seed
        windows = (len(tokens) - 1) // context
        # One window fewer leaves room to begin at another place.
        count = windows if seed is None else max(windows - 1, 0)
        self._plan = EpochPlan(count, options, seed)

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        return len(self._plan)

    def epoch(self, number: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of epoch `number` from `start_batch` on."""
        batches = self._plan.batches_from(start_batch)
        starts = self._context * torch.arange(self._plan.samples)
        if self._seed is not None:
            generator = generator_for(self._seed, number)
            starts = starts[torch.randperm(len(starts), generator=generator)]
            starts += torch.randint(self._context, (), generator=generator)
        offsets = torch.arange(self._context + 1)
        for batch in batches:
            here = starts[self._plan.positions(batch)]
            window = self._tokens[(here[:, None] + offsets).to(self._tokens.device)]
            yield window[:, :-1], window[:, 1:]


@dataclass(frozen=True)
class TextData:
    """Characters as numbers: `alphabet[token]` is a character.

    The test split is the end of the text, the validation split comes before it.
    """

    alphabet: str
    train: Tensor
    validation: Tensor
    test: Tensor
    context: int

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the text."""
        digest = hashlib.sha256(self.alphabet.encode())
        for split in (self.train, self.validation, self.test):
            digest.update(split.numpy().tobytes())
        return digest.hexdigest()[:16]

    def training(self, options: LoaderOptions, *, seed: int) -> TextBatches:
        """Windows of the training text in random order, at places that change every epoch."""
        return TextBatches(self.train, self.context, options, seed=seed)

    def evaluation(self, split: SplitName, options: LoaderOptions) -> TextBatches:
        """The windows of a split, one after the other."""
        return TextBatches(getattr(self, split), self.context, options)


def text_data(text: str, options: DataOptions, *, context: int) -> TextData:
    """Cut a text into splits. The numbers in `options` count windows of `context` characters.

    Each split is one piece of the text, so `split_seed` makes no difference.
    """
    windows = (len(text) - 1) // context
    held_out = max(1, round(_HELD_OUT * windows))
    validation = held_out if options.validation_images is None else options.validation_images
    left = windows - validation - held_out
    train = left if options.train_images is None else options.train_images
    if not 2 <= train <= left:
        raise SettingError(
            f"a text of {len(text)} characters is {windows} windows of {context}; less "
            f"{validation} for validation and {held_out} for the test that leaves {max(left, 0)}, "
            f"but {max(train, 2)} are needed: use a longer text, fewer train_images or fewer "
            "validation_images"
        )
    alphabet = "".join(sorted(set(text)))
    number = {character: index for index, character in enumerate(alphabet)}
    tokens = torch.tensor([number[character] for character in text])

    def cut(first: int, count: int) -> Tensor:
        return tokens[first * context : (first + count) * context + 1]

    return TextData(
        alphabet=alphabet,
        train=cut(0, train),
        validation=cut(left, validation),
        test=cut(left + validation, held_out),
        context=context,
    )


def read_text(root: Path) -> str:
    """The text of a file, or of all `.txt` files in a folder, in order of their names.

    If the default folder `data` has none, the documentation that comes with Python.
    """
    files = [root] if root.is_file() else sorted(root.glob("*.txt"))
    if not files and root.name == _DEFAULT_ROOT:
        from pydoc_data.topics import topics

        return "\n\n".join(topics[name] for name in sorted(topics))
    if not files:
        raise MissingDataError(
            f"there is no text at {root}: give a file, or a folder of .txt files"
        )
    try:
        return "\n\n".join(path.read_text(encoding="utf-8") for path in files)
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedDataError(f"cannot read the text at {root} as UTF-8: {error}") from error
