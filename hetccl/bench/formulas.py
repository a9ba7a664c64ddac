"""The bandwidths that nccl-tests reports, by collective. No torch here: the command line reads the names."""

from collections.abc import Callable

__all__ = ["BUS"]


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
