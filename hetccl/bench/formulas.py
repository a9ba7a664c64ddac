"""What can be measured, and the bandwidths that nccl-tests reports for it.

No torch here: the command line reads the names.
"""

from collections.abc import Callable

__all__ = ["BUS", "DTYPES", "bound"]

DTYPES = ("bfloat16", "float16", "float32", "float64", "int8", "int32", "int64", "uint8")
"""torch's names of the dtypes."""


def _all(ranks: int) -> float:
    return (ranks - 1) / ranks


BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * _all(ranks),
    "all_gather": _all,
    "reduce_scatter": _all,
    "broadcast": lambda _: 1.0,
    "all_to_all": _all,
}
"""What turns size / time into the bandwidth that the busiest wire has to carry, given the number of ranks. The size is
that of the larger of input and output."""


def bound(op: str, ranks: int, copy: float) -> float:
    """What an op cannot be faster than between CPU ranks, given what a copy of its larger buffer takes while all ranks
    copy: each byte that its busiest rank has to receive is written once. Latency is not in it."""
    return BUS[op](ranks) * copy
