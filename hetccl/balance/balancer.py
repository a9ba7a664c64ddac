"""The balance of one process: which share it has in which batch, and when all ranks look at their speeds again."""

import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hetccl.balance.decide import FIRST_INTERVAL, Decision, Measured, Policy
from hetccl.balance.schedule import Schedule
from hetccl.balance.stopwatch import Stopwatch, most_samples
from hetccl.communicator import Communicator

__all__ = ["Balancer", "Share"]

_logger = logging.getLogger("hetccl")

LEADER = 0
"""The rank that decides for all."""
_WHOLE = 1_000_000
_COMPILED_SIZES = 16
"""Where torch.compile is at work a rank has about so many sizes at most, as each may be compiled anew."""


@dataclass(frozen=True)
class Share:
    """What this rank has of batch `number`: samples `begin` to `begin + size` of `total`."""

    number: int
    begin: int
    size: int
    total: int
    even: bool
    """True where all ranks have as many."""


class Balancer:
    """Made by all ranks of the world at once, over a communicator of their own.

    `weight` is the pool's, None where it has none. `adapt`: Auto. Without it the shares follow the weights, or, where a
    rank has none, what the first steps measure. `normalised`: the losses are sums, or normalised over the global batch
    by the script, so that gradients are not weighted here.
    """

    def __init__(
        self, communicator: Communicator, *, weight: float | None, adapt: bool, normalised: bool = False
    ) -> None:
        self.rank, self.ranks = communicator.rank, communicator.size
        self.number = 0
        """The number of the next batch."""
        self.current: Share | None = None
        """The share in hand."""
        self.weighs = False
        """True once gradients are weighed without the loop's doing."""
        self.device = torch.device("cpu")
        self._communicator = communicator
        self._normalised = normalised
        weights = self._everyones(weight if weight and not adapt else math.nan)
        measured = any(math.isnan(value) for value in weights)
        self.schedule = Schedule([1] * self.ranks if measured else [max(1, round(w * _WHOLE)) for w in weights])
        self._policy = Policy(self.ranks, freeze=not adapt)
        self._next_look = FIRST_INTERVAL if measured else -1
        self._stopwatch = Stopwatch(self.device)
        self._in_backward = False

    def watch(self, device: torch.device) -> None:
        """Steps are computed on `device`."""
        if device != self.device:
            self.device, self._stopwatch = device, Stopwatch(device)

    def share(self, number: int, total: int) -> Share:
        """This rank's part of batch `number`, which has `total` samples."""
        sizes = self.schedule.sizes(number, total)
        return Share(number, sum(sizes[: self.rank]), sizes[self.rank], total, len(set(sizes)) == 1)

    def begin(self, share: Share, ahead: int) -> None:
        """The step of `share` begins. `ahead`: the batches that may have been drawn beyond it."""
        self.current = share
        self.number = share.number + 1
        if share.number == self._next_look:
            self._look(share, ahead)
        self._stopwatch.start()

    def leave(self) -> None:
        """What comes next is not shared."""
        self.current = None

    @property
    def factor(self) -> float:
        """What this rank's gradient counts in the mean over the ranks, beside that of an even share."""
        share = self.current
        return 1.0 if share is None or share.even or self._normalised else share.size * self.ranks / share.total

    def backward(self) -> None:
        """To be called within a backward pass, as often as one likes."""
        if self.current is not None and not self._in_backward:
            self._in_backward = True
            # Before DDP's own, which waits for the other ranks.
            torch.autograd.Variable._execution_engine.queue_callback(self._computed)

    def _computed(self) -> None:
        self._in_backward = False
        if self.current is not None:
            self._stopwatch.stop(self.current.size)

    def fractions(self, weights: Sequence[int] = ()) -> dict[str, float]:
        """The part of each batch that the ranks of each pool have together, by the newest weights or by these."""
        weights = weights or self.schedule.latest
        pools: dict[str, float] = {}
        for rank, weight in zip(self._communicator.topology.ranks, weights, strict=True):
            pools[rank.pool] = pools.get(rank.pool, 0.0) + weight / sum(weights)
        return pools

    def close(self) -> None:
        """Leave the communicator."""
        self._communicator.close()

    def _everyones(self, value: float) -> list[float]:
        everyones = torch.empty(self.ranks, dtype=torch.float64)
        self._communicator.all_gather(everyones, torch.tensor([value], dtype=torch.float64))
        return [float(one) for one in everyones]

    def _look(self, share: Share, ahead: int) -> None:
        """All ranks say how fast they are, rank 0 decides, all ranks know the batch from which it holds."""
        own = torch.tensor(
            [self._stopwatch.take(), most_samples(self.device, self._stopwatch.largest), ahead], dtype=torch.float64
        )
        rows = torch.empty(3 * self.ranks, dtype=torch.float64) if self.rank == LEADER else None
        self._communicator.gather(rows, own, LEADER)
        told = torch.empty(2 + self.ranks, dtype=torch.int64)
        if rows is not None:
            said = rows.view(self.ranks, 3).tolist()
            decision = self._policy.decide(
                [Measured(speed, int(limit)) for speed, limit, _ in said],
                self.schedule.latest,
                share.total,
                max(1, share.total // self.ranks // _COMPILED_SIZES) if _compiles() else 1,
            )
            start = share.number + 1 + max(int(drawn) for _, _, drawn in said)
            told = torch.tensor([start if decision.changed else -1, decision.interval, *decision.weights])
            self._tell(decision, start)
        self._communicator.broadcast(told, LEADER)
        start, interval, *weights = (int(value) for value in told)
        if start >= 0:
            self.schedule.add(start, weights)
        self._next_look = share.number + interval if interval else -1

    def _tell(self, decision: Decision, start: int) -> None:
        if decision.changed:
            parts = ", ".join(f"pool {pool} {part:.1%}" for pool, part in self.fractions(decision.weights).items())
            _logger.info("load balance: from batch %d on of each batch %s", start, parts)
        elif not decision.interval:
            _logger.info("load balance: the shares stay as they are from now on")


def _compiles() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["stats"]["unique_graphs"])
