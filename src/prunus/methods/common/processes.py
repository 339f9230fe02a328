"""What the processes of a distributed run have between them: so all of them decide the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor


def sum_over_processes(tensor: Tensor) -> Tensor:
    """In place; call it in every process. A single process has nothing to add."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


class Processes:
    """Those that share out a model's parameters: one alone, which has everything."""

    rank: int = 0

    def gather(self, array: Any) -> list[Any]:
        """The arrays of all processes, in their order."""
        return [array]

    def sum(self, array: Any) -> Any:
        """The sum over all processes."""
        return np.sum(self.gather(array), axis=0)


ALONE = Processes()
