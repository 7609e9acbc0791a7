"""Divide work among the workers of a training run, and exchange tensors between them (torch.distributed).

Gradients on shares of a batch sum to the batch's gradient, because gathering passes gradients back.

torch ends a collective call that waits longer than its timeout. Steps of training use the usual timeout. Calls after
work of unequal length, such as mining, wait up to PATIENCE. Ray ends the group earlier if a worker dies.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from rayhier.arrays import Ints

T = TypeVar("T")
A = TypeVar("A", bound=tuple[npt.NDArray[Any], ...])
PATIENCE = timedelta(days=7)
_patient: dict[Any, Any] = {}
"""Group of all workers -> a group of the same workers with timeout PATIENCE. Made at first use."""


class WorkerGroup:
    def __init__(self) -> None:
        started = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if started else 0
        self.size = dist.get_world_size() if started else 1
        if self.size > 1 and dist.group.WORLD not in _patient:
            _patient[dist.group.WORLD] = dist.new_group(backend="gloo", timeout=PATIENCE)

    def shares(self, rows: Ints) -> list[Ints]:
        return [np.asarray(part) for part in np.array_split(rows, self.size)]

    def each(self, function: Callable[[T], Any], items: Iterable[T]) -> list[Any]:
        """Compute `function` of each item. Each worker computes a share of the items, and gets all results."""
        listed = list(items)
        own = [function(item) for item in listed[self.rank :: self.size]]
        if self.size == 1:
            return own
        shares = self._exchange(own)
        return [shares[place % self.size][place // self.size] for place in range(len(listed))]

    def spread(self, function: Callable[..., A], *arrays: npt.NDArray[Any]) -> A:
        """Apply `function`, which returns a tuple of arrays, to rows of `arrays`. Each worker computes a share."""
        if self.size == 1:
            return function(*arrays)
        share = self.shares(np.arange(len(arrays[0])))[self.rank]
        shares = self._exchange(function(*(array[share] for array in arrays)))
        return cast("A", tuple(np.concatenate(parts) for parts in zip(*shares, strict=True)))

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
        dist.broadcast_object_list(values, src=0, group=self._waiting())
        return values[0]

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        if self.size > 1:
            dist.barrier(self._waiting())
            for tensor in tensors:
                dist.broadcast(tensor.data, src=0)

    def join(self, part_ND: Tensor, sizes: Sequence[int]) -> Tensor:
        if self.size == 1:
            return part_ND
        dist.barrier(self._waiting())
        return _collect(part_ND, sizes)

    def _exchange(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._waiting())
        return values

    def _waiting(self) -> Any:
        return _patient[dist.group.WORLD]


class _Gather(torch.autograd.Function):
    """Gathers rows of all workers. Its backward pass sums the gradients that all workers' losses have for a row."""

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
    """Collect shares of unequal length, padded to the longest, because torch gathers equal shapes only."""
    filled = x_ND.new_zeros(max(sizes), *x_ND.shape[1:])
    filled[: len(x_ND)] = x_ND
    parts = [torch.empty_like(filled) for _ in sizes]
    dist.all_gather(parts, filled)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _device() -> torch.device:
    return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
