"""Tensors that several processes share out (`fully_shard`): each has some of the rows."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process has only a part of the tensor."""
    # Whoever shards a model has imported it. We do not: it is large, and a process of DDP that
    # loads it on the way may crash as it ends.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """The part that this process has, in the same memory; of a plain tensor, the tensor itself."""
    part: Any = tensor
    return part.to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor, in every process. Every process has to call this."""
    shared: Any = tensor
    return shared.full_tensor() if is_sharded(tensor) else tensor


def summed_up(part: Tensor, of: Tensor) -> Tensor:
    """The sum of `part` over all processes that share `of`; gradients go to this process's part."""
    shared: Any = of
    total = part.detach().clone()
    dist.all_reduce(total, group=shared.device_mesh.get_group())
    return part + (total - part.detach())


def fill(tensor: Tensor, values: Tensor) -> None:
    """Copy `values`, which are whole, into `tensor`, which may be shared out."""
    if is_sharded(tensor):
        from torch.distributed.tensor import distribute_tensor

        shared: Any = tensor
        values = distribute_tensor(
            values.to(shared.device), shared.device_mesh, shared.placements, src_data_rank=None
        )
    tensor.copy_(values)
