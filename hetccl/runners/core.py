"""The C core through ctypes. Every call runs without the GIL."""

import ctypes
import functools
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from hetccl.plan import Schedule
from hetccl.plan.schedule import flatten
from hetccl.runners.base import SLOT_BYTES, SLOTS, Failure, Status

__all__ = ["CoreRunner", "library"]

INTERFACE = 2
FILE = Path(__file__).parents[1] / "core" / "libhetccl.so"
_MOST_WAITING = 64
_LONGEST_SECONDS = 1e9


class _Error(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("waiting_count", ctypes.c_int32),
        ("sequence", ctypes.c_uint64),
        ("what", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("waiting", ctypes.c_int32 * _MOST_WAITING),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("group", ctypes.c_void_p),
        ("plan", ctypes.c_void_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("sequence", ctypes.c_uint64),
        ("what", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("timeout", ctypes.c_int64),
        ("error", ctypes.c_void_p),
    )


def _failure(error: _Error) -> Failure:
    waiting = tuple(sorted(error.waiting[: min(error.waiting_count, _MOST_WAITING)]))
    return Failure(Status(error.status), error.rank, error.code, waiting, error.sequence, error.what, error.count)


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
        "het_abort": (None, pointer),
        "het_plan_load": (pointer, pointer, long),
        "het_plan_free": (None, pointer),
        "het_run": (number, pointer),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
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


class _Group:
    def __init__(self, core: ctypes.CDLL, identity: int, rank: int, size: int) -> None:
        self._core = core
        self._handle = core.het_group_open(identity, rank, size)
        if not self._handle:
            raise MemoryError("the C core has no memory for a group")
        self._ended = threading.Lock()  # held while a collective runs
        self._alive = threading.Lock()  # held while an abort looks at the group

    def connect(self, rank: int, link: _Link) -> None:
        with self._ended:
            if self._handle:
                self._core.het_group_connect(self._handle, rank, link.handle)

    def bind(self, program: _Program, what: int, count: int) -> Callable[[int, int, int, float], Failure | None]:
        error = _Error()
        call = _Call(self._handle, program.handle, 0, 0, 0, 0, what, count, 0, ctypes.addressof(error))
        pointer, run, lock = ctypes.byref(call), self._core.het_run, self._ended

        def launch(source: int, target: int, sequence: int, timeout: float) -> Failure | None:
            with lock:
                if not self._handle:
                    return Failure(Status.ABORTED)
                call.input = source
                call.output = target
                call.sequence = sequence
                call.timeout = int(min(timeout, _LONGEST_SECONDS) * 1e9)
                return _failure(error) if run(pointer) else None

        launch.program = program  # type: ignore[attr-defined]  # the plan lives as long as what runs it
        return launch

    def abort(self) -> None:
        with self._alive:
            if self._handle:
                self._core.het_abort(self._handle)

    def close(self) -> None:
        self.abort()
        with self._ended, self._alive:
            handle, self._handle = self._handle, None
        if handle:
            self._core.het_group_close(handle)


class CoreRunner:
    """Runs schedules in C."""

    shares_memory = True

    def __init__(self, core: ctypes.CDLL) -> None:
        self._core = core

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

    def group(self, identity: int, rank: int, size: int) -> _Group:
        return _Group(self._core, identity, rank, size)

    def program(self, schedule: Schedule, dtype: int, reduction: int) -> _Program:
        return _Program(self._core, flatten(schedule, dtype, reduction))
