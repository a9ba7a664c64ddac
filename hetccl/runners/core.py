"""The C core through ctypes. Every call runs without the GIL."""

import atexit
import ctypes
import functools
import itertools
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from hetccl.plan import Schedule
from hetccl.plan.schedule import flatten
from hetccl.runners.base import SLOT_BYTES, SLOTS, Failure, Launch, Status, Ticket, Watch

__all__ = ["CoreRunner", "library"]

logger = logging.getLogger("hetccl")

INTERFACE = 3
FILE = Path(__file__).parents[1] / "core" / "libhetccl.so"
_MOST_WAITING = 64
_LONGEST_SECONDS = 1e9


class _Error(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("waiting_count", ctypes.c_int32),
        ("own", ctypes.c_uint64),
        ("sequence", ctypes.c_uint64),
        ("what", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("waiting", ctypes.c_int32 * _MOST_WAITING),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("group", ctypes.c_void_p),
        ("plan", ctypes.c_void_p),
        ("what", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("scratch_bytes", ctypes.c_uint64),
    )


class _Event(ctypes.Structure):
    LOST, ABORT = 1, 2
    _fields_ = (
        ("peer", ctypes.c_uint64),
        ("kind", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("group", ctypes.c_uint64),
        ("bytes", ctypes.c_uint32),
        ("text", ctypes.c_char * (1 << 16)),
    )


def _failure(address: int) -> Failure | None:
    error = _Error.from_address(address)
    if not error.status:
        return None
    waiting = tuple(sorted(error.waiting[: min(error.waiting_count, _MOST_WAITING)]))
    theirs = error.sequence, error.what, error.count
    return Failure(Status(error.status), error.own, error.rank, error.code, waiting, *theirs)


@functools.lru_cache(maxsize=64)
def _nanoseconds(seconds: float) -> int:
    return int(min(seconds, _LONGEST_SECONDS) * 1e9)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The C core, or None where it was not built, or not for this machine."""
    try:
        core = ctypes.CDLL(str(FILE))
    except OSError:
        return None
    if core.het_interface() != INTERFACE:
        return None
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
    long, unsigned = ctypes.c_int64, ctypes.c_uint64
    signatures = {
        "het_ring_size": (ctypes.c_size_t, size, size),
        "het_link_open_shm": (pointer, pointer, pointer, size, size),
        "het_link_open_tcp": (pointer, pointer, number, size, size),
        "het_link_close": (None, pointer),
        "het_link_kill": (None, pointer, number),
        "het_group_open": (pointer, unsigned, number, number),
        "het_group_connect": (None, pointer, number, pointer),
        "het_group_close": (None, pointer),
        "het_group_free": (None, pointer),
        "het_group_sequence": (unsigned, pointer),
        "het_abort": (None, pointer),
        "het_plan_load": (pointer, pointer, long),
        "het_plan_free": (None, pointer),
        "het_run": (number, pointer, pointer, pointer, long),
        "het_error": (pointer,),
        "het_start": (pointer, pointer, pointer, pointer, long, unsigned),
        "het_wait": (number, pointer, long),
        "het_ticket_error": (pointer, pointer),
        "het_ticket_free": (None, pointer),
        "het_watch": (number, pointer),
        "het_finished": (number, pointer, number),
        "het_stop": (None,),
        "het_pulse_add": (unsigned, number, long, long),
        "het_pulse_tell": (None, unsigned, unsigned, ctypes.c_char_p, size),
        "het_pulse_next": (None, pointer),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    atexit.register(core.het_stop)  # before the memory goes that the progress thread works on
    return core


class _Link:
    def __init__(self, core: ctypes.CDLL, handle: int | None) -> None:
        if not handle:
            raise MemoryError("the C core has no memory for a link")
        self._core, self.handle = core, handle

    def kill(self, code: int) -> None:
        self._core.het_link_kill(self.handle, code)

    def close(self) -> None:
        self._core.het_link_close(self.handle)


class _Program:
    def __init__(self, core: ctypes.CDLL, words: Sequence[int]) -> None:
        self._core = core
        self.handle = core.het_plan_load((ctypes.c_int64 * len(words))(*words), len(words))
        if not self.handle:
            raise MemoryError(f"the C core did not take a plan of {len(words)} words")

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._core.het_plan_free(self.handle)


class _Ticket:
    def __init__(self, core: ctypes.CDLL, handle: int, kept: object) -> None:
        self._core, self._handle, self._kept = core, handle, kept
        self.watched = False

    def wait(self, seconds: float | None) -> bool:
        return bool(self._core.het_wait(self._handle, _nanoseconds(_LONGEST_SECONDS if seconds is None else seconds)))

    @property
    def failure(self) -> Failure | None:
        return _failure(self._core.het_ticket_error(self._handle))

    def watch(self) -> bool:
        self.watched = True
        return not self._core.het_watch(self._handle)

    def __del__(self) -> None:
        if self.wait(0):  # else the process ends, and the core still has it
            self._core.het_ticket_free(self._handle)


class _Started:
    """Keeps the tickets that are not done, and tells of those that the core says are to be told of."""

    def __init__(self, core: ctypes.CDLL) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._tickets: dict[int, tuple[_Ticket, Callable[[Ticket], None]]] = {}
        self._listening = False

    def start(
        self, in_flight: "deque[int]", begin: Callable[[int], int | None], tell: Callable[[Ticket], None], kept: object
    ) -> _Ticket:
        """Start one by `begin`, which is given its number. `in_flight` are its group's, the oldest first."""
        with self._lock:
            if not self._listening:
                threading.Thread(target=self._listen, name="hetccl-finished", daemon=True).start()
                self._listening = True
            self._drop_done(in_flight)
            number = next(self._numbers)
            handle = begin(number)
            if not handle:
                raise MemoryError("the C core has no memory, or no thread, to start a collective")
            ticket = _Ticket(self._core, handle, kept)
            self._tickets[number] = ticket, tell
            in_flight.append(number)
        return ticket

    def end(self, in_flight: "deque[int]") -> None:
        """The group of these is closed."""
        with self._lock:
            self._drop_done(in_flight)

    def _drop_done(self, in_flight: "deque[int]") -> None:
        while in_flight and self._dropped(in_flight[0]):
            in_flight.popleft()

    def _dropped(self, number: int) -> bool:
        """Drop one that is done, unless it is told of and dropped then. False where it is not done."""
        if number not in self._tickets:
            return True
        ticket, _ = self._tickets[number]
        if not ticket.wait(0):
            return False
        if not ticket.watched and ticket.failure is None:
            del self._tickets[number]
        return True

    def _listen(self) -> None:
        numbers = (ctypes.c_uint64 * 64)()
        while (count := self._core.het_finished(numbers, len(numbers))) > 0:
            for number in numbers[:count]:
                with self._lock:  # it may not be among the tickets yet
                    started = self._tickets.pop(number, None)
                if started is not None:
                    ticket, tell = started
                    tell(ticket)
                    del ticket, tell
                started = None


class _Bound:
    """A program in a group, and what it is called with."""

    def __init__(self, group: "_Group", program: _Program, what: int, count: int, scratch: int) -> None:
        self._group, self._program = group, program  # they live as long as what runs them
        self._pointer = ctypes.byref(_Call(group.handle, program.handle, what, count, scratch))
        self._run, self._error, self._start = group.core.het_run, group.core.het_error, group.core.het_start

    def run(self, source: int, target: int, timeout: float) -> Failure | None:
        if self._run(self._pointer, source, target, _nanoseconds(timeout)):
            return _failure(self._error())
        return None

    def start(self, source: int, target: int, timeout: float, tell: Callable[[Ticket], None]) -> Ticket:
        def begin(number: int) -> int | None:
            handle: int | None = self._start(self._pointer, source, target, _nanoseconds(timeout), number)
            return handle

        return self._group.started.start(self._group.in_flight, begin, tell, self)


class _Group:
    def __init__(self, core: ctypes.CDLL, started: _Started, identity: int, rank: int, size: int) -> None:
        self.core, self.started = core, started
        self.handle = core.het_group_open(identity, rank, size)
        if not self.handle:
            raise MemoryError("the C core has no memory for a group")
        self.in_flight: deque[int] = deque()
        self._closed = False

    def connect(self, rank: int, link: _Link) -> None:
        self.core.het_group_connect(self.handle, rank, link.handle)

    @property
    def sequence(self) -> int:
        return int(self.core.het_group_sequence(self.handle))

    def bind(self, program: _Program, what: int, count: int, scratch: int) -> Launch:
        bound = _Bound(self, program, what, count, scratch)
        return Launch(bound.run, bound.start)

    def abort(self) -> None:
        self.core.het_abort(self.handle)

    def close(self) -> None:
        self._closed = True
        self.core.het_group_close(self.handle)
        self.started.end(self.in_flight)

    def __del__(self) -> None:
        if getattr(self, "_closed", False):
            self.core.het_group_free(self.handle)


class _Watch:
    """The pulse of the C core, and a thread that tells Python of it."""

    def __init__(self, core: ctypes.CDLL, aborted: Callable[[int, str], None], beat: float, limit: float) -> None:
        self._core, self._aborted = core, aborted
        self._times = _nanoseconds(beat), _nanoseconds(limit)
        self._lock = threading.Lock()
        self._numbers: dict[bytes, int] = {}
        self._peers: dict[int, tuple[bytes, Callable[[int], None]]] = {}
        threading.Thread(target=self._listen, name="hetccl-watch", daemon=True).start()

    def add(self, key: bytes, connection: socket.socket, lost: Callable[[int], None]) -> None:
        connection.setblocking(False)
        with self._lock:
            number = self._core.het_pulse_add(connection.fileno(), *self._times)
            if not number:
                raise MemoryError("the C core has no memory, or no thread, to watch a peer")
            self._numbers[key] = number
            self._peers[number] = key, lost

    def tell_abort(self, key: bytes, group: int, text: str) -> None:
        number = self._numbers.get(key)
        if number is not None:
            body = text.encode()
            self._core.het_pulse_tell(number, group, body, len(body))

    def _listen(self) -> None:
        event = _Event()
        while True:
            self._core.het_pulse_next(ctypes.byref(event))
            try:
                if event.kind == _Event.LOST:
                    self._lose(event.peer, event.code)
                elif event.kind == _Event.ABORT:
                    text = ctypes.string_at(ctypes.addressof(event) + _Event.text.offset, event.bytes)
                    self._aborted(event.group, text.decode(errors="replace"))
            except Exception:  # what goes wrong with one peer is no reason to stop watching the others
                logger.exception("the connection to a peer failed")

    def _lose(self, number: int, code: int) -> None:
        with self._lock:
            key, lost = self._peers.pop(number)
            if self._numbers.get(key) == number:
                del self._numbers[key]
        lost(code)


class CoreRunner:
    """Runs schedules in C."""

    shares_memory = True

    def __init__(self, core: ctypes.CDLL) -> None:
        self._core = core
        self._started = _Started(core)

    def tcp(self, sockets: Sequence[socket.socket]) -> _Link:
        for each in sockets:
            each.setblocking(False)
        descriptors = (ctypes.c_int32 * len(sockets))(*(each.fileno() for each in sockets))
        handle = self._core.het_link_open_tcp(descriptors, len(sockets), SLOTS, SLOT_BYTES)
        return _Link(self._core, handle)

    def shm(self, tx: int, rx: int) -> _Link:
        return _Link(self._core, self._core.het_link_open_shm(tx, rx, SLOTS, SLOT_BYTES))

    def ring_bytes(self) -> int:
        size: int = self._core.het_ring_size(SLOTS, SLOT_BYTES)
        return -(-size // 64) * 64

    def watch(self, aborted: Callable[[int, str], None], beat: float, limit: float) -> Watch:
        return _Watch(self._core, aborted, beat, limit)

    def group(self, identity: int, rank: int, size: int) -> _Group:
        return _Group(self._core, self._started, identity, rank, size)

    def program(self, schedule: Schedule, dtype: int, reduction: int) -> _Program:
        return _Program(self._core, flatten(schedule, dtype, reduction))
