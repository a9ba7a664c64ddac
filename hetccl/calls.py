"""Collectives as they are asked for: what all ranks must agree on, packed into what every message carries."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hetccl.dtypes import DTYPES, Op, code_of

__all__ = ["Call", "describe", "sizes_digest"]

_NAMES = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "barrier",
    "send",
)


@dataclass(frozen=True)
class Call:
    """A collective as it is asked for: what all ranks must agree on, and how an error names it.

    Of an all_to_all, `sent` and `received` are the elements for and from each rank: each pair has to agree on them.
    """

    name: str
    dtype: torch.dtype
    count: int
    reduction: Op | None = None
    root: int = 0
    digest: int = 0
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()

    @property
    def what(self) -> int:
        """Packed into 64 bits; `unpack` is the reverse."""
        reduction = 0 if self.reduction is None else 1 + list(Op).index(self.reduction)
        fields = (
            (_NAMES.index(self.name), 8),
            (code_of(self.dtype), 8),
            (reduction, 8),
            (self.root, 16),
            (self.digest, 24),
        )
        packed = 0
        for value, bits in fields:
            packed = packed << bits | (value & ((1 << bits) - 1))
        return packed

    def describe(self, sequence: int) -> str:
        return describe(self.what, self.count, sequence)


def describe(what: int, count: int, sequence: int) -> str:
    """A collective in words, from what its messages carry."""
    name = _NAMES[what >> 56] if what >> 56 < len(_NAMES) else "an unknown collective"
    reduction, root = what >> 40 & 0xFF, what >> 24 & 0xFFFF
    details = []
    if name != "barrier":
        details.append(f"{count} x {_dtype_name(what >> 48 & 0xFF)}")
    if reduction:
        details.append(list(Op)[reduction - 1].value)
    if name in ("reduce", "gather", "scatter", "broadcast"):
        details.append(f"root {root}")
    digest = what & 0xFFFFFF
    if digest:
        details.append(f"sizes {digest:06x}")
    return f"{name} #{sequence}" + (f" ({', '.join(details)})" if details else "")


def _dtype_name(code: int) -> str:
    return str(DTYPES[code]).removeprefix("torch.") if code < len(DTYPES) else "unknown"


def sizes_digest(counts: Sequence[int]) -> int:
    """Tells uneven sizes apart, in 24 bits; equal ones need no telling."""
    if len(set(counts)) <= 1:
        return 0
    return int.from_bytes(hashlib.blake2b(repr(tuple(counts)).encode(), digest_size=3).digest(), "big")
