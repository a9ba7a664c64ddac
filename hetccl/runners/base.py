"""What a runner of schedules offers. All of it may be called from any thread."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from hetccl.plan import Schedule

__all__ = [
    "LANE_BITS",
    "SLOTS",
    "SLOT_BYTES",
    "Failure",
    "Group",
    "Launch",
    "Link",
    "Runner",
    "Status",
    "Ticket",
    "Watch",
]

SLOTS, SLOT_BYTES = 8, 128 << 10
"""Messages of this size at most; this many in a ring of shared memory. Both sides of a link must agree."""

LANE_BITS = 16


class Status(IntEnum):
    """How a collective can fail; the numbers are the C core's (core/hetccl.h)."""

    TIMEOUT = 1
    DEAD = 2
    ABORTED = 3
    MISMATCH = 4
    MEMORY = 6
    INVALID = 7


@dataclass(frozen=True)
class Failure:
    """A failed collective: by DEAD and MISMATCH, `rank` is whose fault it was; by TIMEOUT, `waiting` are the ranks that
    were waited for. `own` is the sequence number of what failed, `code` an errno; `sequence`, `what` and `count` are
    those of the message that did not fit."""

    status: Status
    own: int
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


class Ticket(Protocol):
    """A collective that was started."""

    def wait(self, seconds: float | None) -> bool:
        """Whether it is done, after so many seconds at most; None: as long as it takes."""

    @property
    def failure(self) -> Failure | None:
        """How it failed, if it did. Only of one that is done."""

    def watch(self) -> bool:
        """Have its `tell` called when it is done. False where it is done already: it is not called then."""


@dataclass(frozen=True)
class Launch:
    """A program in a group. Collectives of a group run one after the other, in the order of these calls.

    `run(source, target, timeout)` runs it to its end. `start(source, target, timeout, tell)` returns at once; where it
    fails, or is done and was to be watched, `tell(ticket)` is called in a thread of the runner's. `source`, `target`
    are addresses; the runner keeps `tell`, and so all that it refers to, until it is done. Timeouts are in seconds,
    from when its turn comes.
    """

    run: Callable[[int, int, float], Failure | None]
    start: Callable[[int, int, float, Callable[[Ticket], None]], Ticket]


class Group(Protocol):
    """The ranks of a communicator."""

    def connect(self, rank: int, link: Any) -> None:
        """Say how a rank is reached, before the first program that has to do with it."""

    @property
    def sequence(self) -> int:
        """The number of the collective that was asked for last; the first is 1."""

    def bind(self, program: Any, what: int, count: int, scratch: int) -> Launch:
        """What runs a program that uses `scratch` bytes beside input and output; `what` and `count` are compared with
        the other ranks'."""

    def abort(self) -> None:
        """End what runs, and all that will be run."""

    def close(self) -> None:
        """Abort, wait until nothing runs, and release what the group holds."""


class Watch(Protocol):
    """The control connections of this process: heartbeats, and what peers tell of groups that were aborted."""

    def add(self, key: bytes, connection: socket.socket, lost: Callable[[int], None]) -> None:
        """Watch a peer; `lost(errno)` is called once when it is gone."""

    def tell_abort(self, key: bytes, group: int, text: str) -> None:
        """Let a peer know that a group was aborted. One that cannot be told is lost anyway."""


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

    def watch(self, aborted: Callable[[int, str], None], beat: float, limit: float) -> Watch:
        """Watches peers: a beat every `beat` seconds, lost after `limit` seconds of silence. `aborted(group, text)` is
        called for each abort that a peer tells."""

    def group(self, identity: int, rank: int, size: int) -> Group:
        """A group; its identity, below 2**48, is the same on all ranks."""

    def program(self, schedule: Schedule, dtype: int, reduction: int) -> Any:
        """A schedule, ready to run."""
