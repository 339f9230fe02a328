"""What the processes of a distributed run tell each other, so that all of them decide the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor

from prunus.errors import AttachError
from prunus.gates.sharded import is_sharded


def sum_over_processes(tensor: Tensor) -> Tensor:
    """In place; call it in every process. A single process has nothing to add."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


class Processes:
    """The processes that share out a model's parameters; here one alone, which has everything."""

    rank: int = 0

    def gather(self, array: Any) -> list[Any]:
        """What each process has, in their order."""
        return [array]

    def sum(self, array: Any) -> Any:
        """The sum over all processes."""
        return np.sum(self.gather(array), axis=0)


ALONE = Processes()


class Sharing(Processes):
    """Processes each of which has some rows of every tensor (`fully_shard`)."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.rank = dist.get_rank(group)

    def gather(self, array: Any) -> list[Any]:
        gathered: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(gathered, array, group=self._group)
        return gathered


def processes_of(tensors: Sequence[Tensor]) -> Processes:
    """The processes that have a part of the tensors."""
    sharded: list[Any] = [tensor for tensor in tensors if is_sharded(tensor)]
    if not sharded:
        return ALONE
    meshes = {tensor.device_mesh for tensor in sharded}
    alike = len(sharded) == len(tensors) and len(meshes) == 1
    if not alike or any(list(map(str, tensor.placements)) != ["S(0)"] for tensor in sharded):
        raise AttachError(
            "the scores are shared out among processes in different ways: call fully_shard on the "
            "whole model too, with one mesh of one dimension, and shard along the first axis"
        )
    return Sharing(sharded[0].device_mesh.get_group())
