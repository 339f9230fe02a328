"""What determines the demo's result."""

from __future__ import annotations

from dataclasses import dataclass

from prunus.errors import SettingError


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

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    mask_inits: tuple[float, ...] = (-0.05, -0.2, -0.5)
    rounds: int = 2
    epochs: int = 12
    rewind_epoch: int = 1
    train_images: int = 500
    batch_size: int = 25
    lr: float = 0.1

    def __post_init__(self) -> None:
        for name in ("seeds", "mask_inits", "rounds", "epochs", "train_images", "batch_size", "lr"):
            value = getattr(self, name)
            if not value or (isinstance(value, int | float) and value < 0):
                raise SettingError(f"{name}={value}: the demo needs at least one, or more than 0")
        if not 0 <= self.rewind_epoch < self.epochs:
            raise SettingError(
                f"rewind_epoch={self.rewind_epoch} is not between 0 and the last of the "
                f"{self.epochs} epochs"
            )

    @property
    def total_epochs(self) -> int:
        """Epochs of training in the whole experiment."""
        searches = 2 * self.rounds * self.epochs  # by CS and IMP
        retrainings = 3 * (self.epochs - self.rewind_epoch)  # of theirs and of a random mask
        return len(self.seeds) * (self.epochs + len(self.mask_inits) * (searches + retrainings))
