"""When the shares change, and to what: rank 0's part, pure but for its memory of earlier measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

from hetccl.balance.shares import divide, step_time

__all__ = ["Decision", "Measured", "Policy"]

FIRST_INTERVAL = 3
"""Batches between two looks while the shares still move."""
LONGEST_INTERVAL = 48
WARM_UP_LOOKS = 3
"""Looks after which Static, without weights, keeps what it has found."""
WORTH = 0.02
"""Shares change where the step is expected to get shorter by this fraction: less is noise."""
SMOOTHING = 0.6
"""The weight of the newest measurement."""


@dataclass(frozen=True)
class Measured:
    """What one rank says: samples a second since the last look (0: unknown), and the most samples it can hold."""

    speed: float
    limit: int


@dataclass(frozen=True)
class Decision:
    """Weights of all ranks, whole numbers that divide a batch; and in how many batches to look again (0: never)."""

    weights: tuple[int, ...]
    interval: int
    changed: bool


class Policy:
    """Auto, or Static without weights where `freeze` says so."""

    def __init__(self, ranks: int, *, freeze: bool = False) -> None:
        self.speeds: list[float] = []
        self._ranks, self._freeze = ranks, freeze
        self._looks, self._interval = 0, FIRST_INTERVAL

    def decide(self, measured: Sequence[Measured], weights: Sequence[int], total: int, quantum: int) -> Decision:
        """The next weights, from what all ranks measured with the present `weights` and batches of `total` samples."""
        self._looks += 1
        if any(rank.speed <= 0 for rank in measured):
            return Decision(tuple(weights), FIRST_INTERVAL, changed=False)
        fresh = [rank.speed for rank in measured]
        old = self.speeds or fresh
        self.speeds = [
            now if now < before / 2 or now > before * 2 else before + SMOOTHING * (now - before)
            for before, now in zip(old, fresh, strict=True)
        ]
        present = divide(total, [float(weight) for weight in weights])
        # An even share is what the script asked for: no limit is below it, nor below what is in use.
        even = -(-total // self._ranks)
        limits = [max(rank.limit, even, size) for rank, size in zip(measured, present, strict=True)]
        better = divide(total, self.speeds, limits, quantum)
        gain = 1 - step_time(better, self.speeds) / step_time(present, self.speeds)
        changed = gain > WORTH
        self._interval = FIRST_INTERVAL if changed else min(LONGEST_INTERVAL, self._interval * 2)
        last = self._freeze and self._looks >= WARM_UP_LOOKS
        return Decision(tuple(better if changed else weights), 0 if last else self._interval, changed)
