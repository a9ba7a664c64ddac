"""Which weights hold for which batch: the same on every rank, however far each has drawn ahead."""

from bisect import bisect_right
from collections.abc import Sequence

from hetccl.balance.shares import divide

__all__ = ["Schedule"]


class Schedule:
    """Weights by the number of the batch; batches are counted from the first one of the process."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._starts = [0]
        self._weights = [tuple(weights)]

    @property
    def latest(self) -> tuple[int, ...]:
        """The newest weights, in use or soon."""
        return self._weights[-1]

    def add(self, start: int, weights: Sequence[int]) -> None:
        """From batch `start` on `weights` hold, or right after the weights that were added before."""
        self._starts.append(max(start, self._starts[-1] + 1))
        self._weights.append(tuple(weights))

    def sizes(self, number: int, samples: int) -> list[int]:
        """How many of the `samples` of batch `number` each rank takes."""
        weights = self._weights[bisect_right(self._starts, number) - 1]
        return divide(samples, [float(weight) for weight in weights])
