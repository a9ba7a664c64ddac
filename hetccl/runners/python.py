"""The plain Python runner: slower, the same messages, easy to read. Over sockets it can be one side of a link whose
other side is the C core."""

import ctypes
import errno
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hetccl.dtypes import DTYPES, Reduction
from hetccl.plan import Buffer, Operand, Schedule, Step, Wire
from hetccl.runners.base import LANE_BITS, SLOT_BYTES, Failure, Status

__all__ = ["PythonRunner"]

# struct het_line of core/ring.h: ready, bytes, kind, protocol, channel, sequence, what, count, small
LINE = struct.Struct("<QIHHQQQQ16s")
DATA, CREDIT, PROTOCOL, SMALL = 1, 2, 1, 16
WINDOW, REPORT = 64, 8

_INTEGERS = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


@dataclass(frozen=True)
class Message:
    """A message that has arrived."""

    sequence: int
    what: int
    count: int
    payload: bytes


class _Link:
    """Reads all that arrives as it arrives; a reader's memory is bounded by the sender's window."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(None)
        self._sending = threading.Lock()
        self.changed = threading.Condition()
        self.arrived: dict[int, deque[Message]] = defaultdict(deque)
        self.under_way: dict[int, int] = defaultdict(int)
        self._unreported: dict[int, int] = defaultdict(int)
        self.dead = 0
        threading.Thread(target=self._read, name="hetccl-link", daemon=True).start()

    def send(self, channel: int, sequence: int, what: int, count: int, payload: bytes) -> None:
        """One message of data; what cannot be sent marks the link as dead."""
        with self.changed:
            self.under_way[channel >> LANE_BITS] += 1
        self._write(DATA, channel, sequence, what, count, payload)

    def _write(self, kind: int, channel: int, sequence: int, what: int, count: int, payload: bytes) -> None:
        small = payload if len(payload) <= SMALL else b""
        line = LINE.pack(0, len(payload), kind, PROTOCOL, channel, sequence, what, count, small)
        try:
            with self._sending:
                self._socket.sendall(line if len(payload) <= SMALL else line + payload)
        except OSError as error:
            self.kill(error.errno or errno.ECONNRESET)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb", buffering=SLOT_BYTES) as stream:
                while len(line := stream.read(LINE.size)) == LINE.size:
                    _, size, kind, _, channel, sequence, what, count, small = LINE.unpack(line)
                    payload = small[:size] if size <= SMALL else stream.read(size)
                    self._take(kind, channel, Message(sequence, what, count, payload))
        except (OSError, ValueError):
            pass  # as if it had ended: the peer is gone, or this side closed the socket
        self.kill(errno.ECONNRESET)

    def _take(self, kind: int, channel: int, message: Message) -> None:
        group = channel >> LANE_BITS
        with self.changed:
            if kind == CREDIT:
                self.under_way[group] -= message.count
            else:
                self.arrived[channel].append(message)
                self._unreported[group] += 1
            self.changed.notify_all()

    def report(self, group: int, rank: int) -> None:
        """Give the sender its credits back. Never from the thread that reads: writing may have to wait for the peer."""
        with self.changed:
            credits = self._unreported[group]
            if credits < REPORT:
                return
            self._unreported[group] = 0
        self._write(CREDIT, group << LANE_BITS, rank, 0, credits, b"")

    def kill(self, code: int) -> None:
        with self.changed:
            self.dead = self.dead or code
            self.changed.notify_all()

    def close(self) -> None:
        self.kill(errno.ESHUTDOWN)


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@dataclass(frozen=True)
class _Program:
    schedule: Schedule
    dtype: torch.dtype
    reduction: Reduction


class _Run:
    def __init__(self, group: "_Group", program: _Program, bases: Sequence[int], tag: tuple[int, int, int]) -> None:
        self.group, self.program, self.bases, self.tag = group, program, bases, tag
        self.deadline = 0.0

    def steps(self) -> None:
        width = self.program.dtype.itemsize
        most = SLOT_BYTES // width
        for step in self.program.schedule.steps:
            for done in range(0, max(step.count, 1), most):
                count = min(most, step.count - done)
                sources = [self._source(operand, done, count) for operand in step.sources]
                self._store(step, reduce(sources, self.program.reduction, step.divisor), done)

    def _local(self, operand: Buffer, done: int, count: int) -> torch.Tensor:
        width = self.program.dtype.itemsize
        address = self.bases[operand.space] + (operand.offset + done) * width
        memory = (ctypes.c_char * (count * width)).from_address(address)
        return torch.frombuffer(memory, dtype=torch.uint8) if count else torch.empty(0, dtype=torch.uint8)

    def _source(self, operand: Operand, done: int, count: int) -> torch.Tensor:
        if isinstance(operand, Buffer):
            return self._local(operand, done, count).view(self.program.dtype)
        message = self._receive(operand)
        if (message.sequence, message.what, message.count) != self.tag or (
            len(message.payload) != count * self.program.dtype.itemsize
        ):
            theirs = message.sequence, message.what, message.count
            raise _Failed(Failure(Status.MISMATCH, operand.peer, 0, (), *theirs))
        if not message.payload:
            return torch.empty(0, dtype=self.program.dtype)
        return torch.frombuffer(bytearray(message.payload), dtype=torch.uint8).view(self.program.dtype)

    def _store(self, step: Step, result: torch.Tensor, done: int) -> None:
        raw = result.contiguous().view(-1).view(torch.uint8)
        for operand in step.targets:
            if isinstance(operand, Buffer):
                local = self._local(operand, done, result.numel())
                if local.data_ptr() != raw.data_ptr():
                    local.copy_(raw)
            else:
                self._send(
                    operand, bytes((ctypes.c_char * raw.numel()).from_address(raw.data_ptr())) if len(raw) else b""
                )

    def _receive(self, operand: Wire) -> Message:
        arrived = self.group.links[operand.peer].arrived[self.group.identity << LANE_BITS | operand.lane]
        self._wait(operand.peer, lambda: bool(arrived))
        return arrived.popleft()

    def _send(self, operand: Wire, payload: bytes) -> None:
        link = self.group.links[operand.peer]
        self._wait(operand.peer, lambda: link.under_way[self.group.identity] < WINDOW and not link.dead)
        link.send(self.group.identity << LANE_BITS | operand.lane, *self.tag, payload)

    def _wait(self, peer: int, ready: Callable[[], bool]) -> None:
        link = self.group.links[peer]
        while True:
            for each in self.group.links.values():
                each.report(self.group.identity, self.group.rank)
            with link.changed:
                if ready():
                    return
                if self.group.aborted:
                    raise _Failed(Failure(Status.ABORTED))
                if link.dead:
                    raise _Failed(Failure(Status.DEAD, peer, code=link.dead))
                left = self.deadline - time.monotonic()
                if left <= 0:
                    raise _Failed(Failure(Status.TIMEOUT, waiting=(peer,)))
                link.changed.wait(min(left, 0.05))


class _Group:
    def __init__(self, identity: int, rank: int) -> None:
        self.identity, self.rank = identity, rank
        self.links: dict[int, _Link] = {}
        self.aborted = False
        self._running = threading.Lock()

    def connect(self, rank: int, link: _Link) -> None:
        self.links[rank] = link

    def bind(self, program: _Program, what: int, count: int) -> Callable[[int, int, int, float], Failure | None]:
        def launch(source: int, target: int, sequence: int, timeout: float) -> Failure | None:
            if self.aborted:
                return Failure(Status.ABORTED)
            if not self._running.acquire(blocking=False):
                return Failure(Status.BUSY)
            run = _Run(self, program, (source, target, 0), (sequence, what, count))
            run.deadline = time.monotonic() + timeout
            try:
                run.steps()
            except _Failed as failed:
                return failed.failure
            finally:
                self._running.release()
            return None

        return launch

    def abort(self) -> None:
        self.aborted = True
        for link in self.links.values():
            with link.changed:
                link.changed.notify_all()

    def close(self) -> None:
        self.abort()
        with self._running:
            self.links.clear()


def reduce(sources: Sequence[torch.Tensor], reduction: Reduction, divisor: int) -> torch.Tensor:
    """Sources reduced in their order, in fp32 where they are floats of 8 or 16 bits, divided and rounded once."""
    dtype = sources[0].dtype
    if len(sources) == 1 and divisor == 1:
        return sources[0]
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else _INTEGERS.get(dtype, dtype)
    result = sources[0].to(wide)
    for source in sources[1:]:
        result = _APPLY[reduction](result, source.to(wide))
    if divisor != 1:
        result = result / divisor if dtype.is_floating_point else torch.div(result, divisor, rounding_mode="trunc")
    return result.to(dtype)


_APPLY: dict[Reduction, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Reduction.SUM: torch.add,
    Reduction.PROD: torch.mul,
    Reduction.MIN: torch.minimum,
    Reduction.MAX: torch.maximum,
    Reduction.BAND: torch.bitwise_and,
    Reduction.BOR: torch.bitwise_or,
    Reduction.BXOR: torch.bitwise_xor,
}


class PythonRunner:
    """Runs schedules in Python, over one socket a link."""

    shares_memory = False

    def tcp(self, sockets: Sequence[socket.socket]) -> _Link:
        return _Link(sockets[0])

    def shm(self, tx: int, rx: int) -> _Link:  # noqa: ARG002
        raise RuntimeError("the plain Python runner works over sockets only")

    def ring_bytes(self) -> int:
        return 0

    def group(self, identity: int, rank: int, size: int) -> _Group:  # noqa: ARG002
        return _Group(identity, rank)

    def program(self, schedule: Schedule, dtype: int, reduction: int) -> _Program:
        return _Program(schedule, DTYPES[dtype], Reduction(reduction))
