"""What is measured: the buffers of each collective."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["CASES", "Buffers"]


@dataclass(frozen=True)
class Buffers:
    """A rank's input and output; for collectives in place they are one."""

    input: torch.Tensor
    output: torch.Tensor


Maker = Callable[[int, int, torch.dtype], Buffers]


def _in_place(elements: int, _: int, dtype: torch.dtype) -> Buffers:
    tensor = torch.ones(elements, dtype=dtype)
    return Buffers(tensor, tensor)


def _from_part(elements: int, ranks: int, dtype: torch.dtype) -> Buffers:
    part = max(1, elements // ranks)
    return Buffers(torch.ones(part, dtype=dtype), torch.ones(part * ranks, dtype=dtype))


def _to_part(elements: int, ranks: int, dtype: torch.dtype) -> Buffers:
    part = max(1, elements // ranks)
    return Buffers(torch.ones(part * ranks, dtype=dtype), torch.ones(part, dtype=dtype))


def _whole(elements: int, ranks: int, dtype: torch.dtype) -> Buffers:
    whole = max(1, elements // ranks) * ranks
    return Buffers(torch.ones(whole, dtype=dtype), torch.ones(whole, dtype=dtype))


CASES: dict[str, Maker] = {
    "all_reduce": _in_place,
    "all_gather": _from_part,
    "reduce_scatter": _to_part,
    "broadcast": _in_place,
    "all_to_all": _whole,
}
"""Makes a rank's buffers from the number of elements, the number of ranks and the dtype."""
