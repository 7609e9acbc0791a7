"""The workers of a training run: how they divide a batch and exchange tensors (torch.distributed).

Gradients on shares of a batch sum to the batch's gradient, because gathering passes gradients back.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rayhier.arrays import Ints


class WorkerGroup:
    def __init__(self) -> None:
        started = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if started else 0
        self.size = dist.get_world_size() if started else 1

    def shares(self, rows: Ints) -> list[Ints]:
        return [np.asarray(part) for part in np.array_split(rows, self.size)]

    def gather(self, x_ND: Tensor, sizes: Sequence[int]) -> Tensor:
        """Gather every worker's rows [sum of sizes, d]. Gradients flow back to each worker."""
        if self.size == 1:
            return x_ND
        gathered: Tensor = _Gather.apply(x_ND, tuple(sizes), self.rank)  # type: ignore[no-untyped-call]
        return gathered

    def sum(self, value: float | Tensor) -> Tensor:
        total = torch.as_tensor(value, dtype=torch.float64).detach().clone()
        if self.size > 1:
            total = total.to(_device())
            dist.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by its sum over workers. A missing gradient counts as zero."""
        if self.size == 1:
            return
        learned = list(parameters)
        for parameter in learned:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([cast("Tensor", parameter.grad).reshape(-1) for parameter in learned])
        dist.all_reduce(flat)
        for parameter, summed in zip(learned, torch.split(flat, [p.numel() for p in learned]), strict=True):
            cast("Tensor", parameter.grad).copy_(summed.view_as(parameter))

    def agree(self, value: Any) -> Any:
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=_device())
        return values[0]

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.data, src=0)

    def join(self, part_ND: Tensor, sizes: Sequence[int]) -> Tensor:
        return part_ND if self.size == 1 else _collect(part_ND, sizes)


class _Gather(torch.autograd.Function):
    """Gathers rows of all workers; its backward pass sums the gradients that all workers' losses have for a row."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, sizes: tuple[int, ...], rank: int) -> Tensor:
        ctx.begin, ctx.size = sum(sizes[:rank]), sizes[rank]
        return _collect(x_ND, sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        summed = gradients[0].contiguous()
        dist.all_reduce(summed)
        return summed[ctx.begin : ctx.begin + ctx.size], None, None


def _collect(x_ND: Tensor, sizes: Sequence[int]) -> Tensor:
    """Gather shares of unequal length: each is padded to the longest, since torch gathers equal shapes only."""
    filled = x_ND.new_zeros(max(sizes), *x_ND.shape[1:])
    filled[: len(x_ND)] = x_ND
    parts = [torch.empty_like(filled) for _ in sizes]
    dist.all_gather(parts, filled)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _device() -> torch.device:
    return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
