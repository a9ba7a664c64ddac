"""The flight recorder: the last collectives of this process, each with how far it came.

Recording is on the way of every call, so it does no more than note; what the notes mean is for who reads them.
"""

import itertools
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hetccl.calls import Call
from hetccl.settings import TRACE_SIZE

__all__ = ["Entry", "Recorder", "Track", "recorder"]


class Running(Protocol):
    """A collective that was started."""

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""

    @property
    def failed(self) -> bool:
        """Whether it ended badly."""


@dataclass(frozen=True)
class Track:
    """One order of calls: the collectives of a group or, of a `pair`, what goes one way between two ranks.

    `identity` is the same on all ranks of the group; `ranks` are those of the world, of a pair the sender first.
    `receives`: this rank is the second of the pair.
    """

    identity: str
    name: str
    ranks: tuple[int, ...]
    pair: bool = False
    receives: bool = False


class Entry:
    """A call. Times are of time.time_ns; 0: not yet, or not known. `seconds` is its timeout."""

    __slots__ = ("call", "created", "ended", "failed", "number", "running", "seconds", "sequence", "started", "track")

    def __init__(self, number: int, track: Track, call: Call, sequence: int, seconds: float) -> None:
        self.number, self.track, self.call, self.sequence, self.seconds = number, track, call, sequence, seconds
        self.created = time.time_ns()
        self.started = self.ended = 0
        self.failed = False
        self.running: weakref.ref[Running] | None = None

    def follow(self, running: Running) -> None:
        """It was started, and is to be asked how far it is. One that nobody holds any more has ended."""
        self.running = weakref.ref(running)

    def fail(self) -> None:
        """It ended badly, or before it was started."""
        self.failed, self.ended = True, self.ended or time.time_ns()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        if self.running is not None and not self.ended:
            running = self.running()
            if running is None or running.done:
                self.failed = running is not None and running.failed
                return True
            return False
        return self.ended > 0


class Recorder:
    """Keeps the last `size` calls, from any thread."""

    def __init__(self, size: int = TRACE_SIZE) -> None:
        self._entries: deque[Entry] = deque(maxlen=size)
        self._numbers = itertools.count()

    def resize(self, size: int) -> None:
        """From now on keep so many."""
        self._entries = deque(self._entries, maxlen=size)

    def add(self, track: Track, call: Call, sequence: int, seconds: float) -> Entry:
        entry = Entry(next(self._numbers), track, call, sequence, seconds)
        self._entries.append(entry)
        return entry

    def entries(self) -> Sequence[Entry]:
        """The oldest first."""
        while True:
            try:
                return list(self._entries)
            except RuntimeError:  # another thread adds one meanwhile
                continue


recorder = Recorder()
"""This process's."""
