"""What determines the demo's result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The demo's experiment.

    Parameters
    ----------
    seeds
        One repetition of everything for each.
    mask_inits
        Where the scores of CS start; lower keeps fewer weights.
    rounds
        Rounds of each search.
    epochs
        Epochs of each round, and of each training and re-training.
    rewind_epoch
        The epoch whose weights the tickets are re-trained from.
    train_images
        Images to train on, of 800.
    batch_size
        Images in a training step.
    lr
        Learning rate of SGD, which drops twice by ten as in the paper.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3)
    mask_inits: tuple[float, ...] = (-0.02, -0.06, -0.2)
    rounds: int = 2
    epochs: int = 16
    rewind_epoch: int = 1
    train_images: int = 500
    batch_size: int = 25
    lr: float = 0.1

    @property
    def total_epochs(self) -> int:
        """Epochs of training in the whole experiment."""
        per_ticket = 2 * (self.rounds + 1) + 1  # CS and IMP with re-training, and a random mask
        return len(self.seeds) * self.epochs * (1 + len(self.mask_inits) * per_ticket)
