"""What a runner of schedules offers. All of it may be called from any thread."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from hetccl.plan import Schedule

__all__ = ["LANE_BITS", "SLOTS", "SLOT_BYTES", "Failure", "Group", "Link", "Runner", "Status"]

SLOTS, SLOT_BYTES = 8, 128 << 10
"""Messages of this size at most; this many in a ring of shared memory. Both sides of a link must agree."""

LANE_BITS = 16


class Status(IntEnum):
    """How a collective can fail; the numbers are the C core's (core/hetccl.h)."""

    TIMEOUT = 1
    DEAD = 2
    ABORTED = 3
    MISMATCH = 4
    BUSY = 5
    MEMORY = 6
    INVALID = 7


@dataclass(frozen=True)
class Failure:
    """A failed collective: by DEAD and MISMATCH, `rank` is whose fault it was; by TIMEOUT, `waiting` are the ranks that
    were waited for. `code` is an errno; `sequence`, `what` and `count` are those of the message that did not fit."""

    status: Status
    rank: int = -1
    code: int = 0
    waiting: tuple[int, ...] = ()
    sequence: int = 0
    what: int = 0
    count: int = 0


class Link(Protocol):
    """The way to one peer process."""

    def kill(self, code: int) -> None:
        """The peer is gone (`code`, an errno, says why): every wait for it ends."""

    def close(self) -> None:
        """Release what the link holds, once no collective uses it."""


class Group(Protocol):
    """The ranks of a communicator."""

    def connect(self, rank: int, link: Any) -> None:
        """Say how a rank is reached, before the first program that has to do with it."""

    def bind(self, program: Any, what: int, count: int) -> Callable[[int, int, int, float], Failure | None]:
        """A function that runs a program to its end, once a call: given the addresses of input and output, the sequence
        number and the timeout in seconds."""

    def abort(self) -> None:
        """End what runs, and all that will be run."""

    def close(self) -> None:
        """Release what the group holds, once nothing runs."""


class Runner(Protocol):
    """Makes links, groups and programs."""

    shares_memory: bool
    """Whether `shm` is to be had."""

    def tcp(self, sockets: Sequence[socket.socket]) -> Link:
        """A link over connected sockets, in the same order on both sides."""

    def shm(self, tx: int, rx: int) -> Link:
        """A link over two rings in shared memory, each of `ring_bytes` zeroed bytes, at these addresses."""

    def ring_bytes(self) -> int:
        """Bytes of one ring."""

    def group(self, identity: int, rank: int, size: int) -> Group:
        """A group; its identity, below 2**48, is the same on all ranks."""

    def program(self, schedule: Schedule, dtype: int, reduction: int) -> Any:
        """A schedule, ready to run."""
