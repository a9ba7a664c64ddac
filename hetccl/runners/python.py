"""The plain Python runner: slower, the same messages, easy to read. Over sockets it can be one side of a link whose
other side is the C core."""

import contextlib
import ctypes
import errno
import functools
import select
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
from hetccl.runners.base import LANE_BITS, SLOT_BYTES, Failure, Launch, Status, Ticket
from hetccl.wires.watch import Watch

__all__ = ["PythonRunner"]

# struct het_line of core/ring.h: ready, bytes, kind, protocol, channel, sequence, what, count, small
LINE = struct.Struct("<QIHHQQQQ16s")
DATA, CREDIT, PROTOCOL, SMALL = 1, 2, 1, 16
WINDOW, REPORT, REMEMBERED = 64, 8, 1024
TICK_SECONDS = 0.05

NAN = {
    torch.float16: 0x7E00,
    torch.bfloat16: 0x7FC0,
    torch.float32: 0x7FC00000,
    torch.float64: 0x7FF8000000000000,
    torch.float8_e4m3fn: 0x7F,
    torch.float8_e5m2: 0x7E,
    torch.float8_e4m3fnuz: 0x80,
    torch.float8_e5m2fnuz: 0x80,
}
"""The bit pattern of a NaN that a reduction computes."""

_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_INTEGERS = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


@dataclass
class Message:
    """A message that has arrived. `credited`: counted as used, which makes room for another one of its group."""

    sequence: int
    what: int
    count: int
    payload: bytes
    credited: bool = False


class _Link:
    """Reads all that arrives as it arrives. A message counts as used once its collective runs here, so that the
    sender's window bounds what is kept for later ones."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(None)
        self._sending = threading.Lock()
        self.changed = threading.Condition()
        self.arrived: dict[int, deque[Message]] = defaultdict(deque)
        self.under_way: dict[int, int] = defaultdict(int)
        self._running: dict[int, int] = {}
        self._unreported: dict[int, int] = defaultdict(int)
        self._over: deque[int] = deque(maxlen=REMEMBERED)
        self.dead = 0
        threading.Thread(target=self._read, name="hetccl-link", daemon=True).start()

    def start(self, group: int, sequence: int) -> None:
        """A group begins a collective: what it was sent for it may be used."""
        with self.changed:
            self._running[group] = sequence
            for channel, messages in self.arrived.items():
                if channel >> LANE_BITS == group:
                    for message in messages:
                        self._credit(group, message)

    def _credit(self, group: int, message: Message) -> None:
        if not message.credited and message.sequence <= self._running.get(group, 0):
            message.credited = True
            self._unreported[group] += 1

    def send(
        self, check: Callable[[], None], channel: int, sequence: int, what: int, count: int, payload: bytes
    ) -> None:
        """One message of data. `check` is called while it has to wait, and raises what ends the wait."""
        with self.changed:
            self.under_way[channel >> LANE_BITS] += 1
        self._write(check, DATA, channel, sequence, what, count, payload)

    def _write(
        self, check: Callable[[], None], kind: int, channel: int, sequence: int, what: int, count: int, payload: bytes
    ) -> None:
        small = payload if len(payload) <= SMALL else b""
        line = LINE.pack(0, len(payload), kind, PROTOCOL, channel, sequence, what, count, small)
        whole = left = memoryview(line if len(payload) <= SMALL else line + payload)
        while not self._sending.acquire(timeout=TICK_SECONDS):
            check()
        try:
            while left:
                try:
                    left = left[self._socket.send(left, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    select.select((), (self._socket,), (), TICK_SECONDS)
                    check()
        except OSError as error:
            self.kill(error.errno or errno.ECONNRESET)
        except _Failed:
            if len(left) < len(whole):
                self.kill(errno.ECONNABORTED)  # nothing that follows half a message could be understood
            raise
        finally:
            self._sending.release()

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb", buffering=SLOT_BYTES) as stream:
                while len(line := stream.read(LINE.size)) == LINE.size:
                    _, size, kind, protocol, channel, sequence, what, count, small = LINE.unpack(line)
                    if protocol != PROTOCOL or size > SLOT_BYTES:
                        break
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
            elif group not in self._over:
                self.arrived[channel].append(message)
                self._credit(group, message)
            self.changed.notify_all()

    def report(self, check: Callable[[], None], group: int, rank: int) -> None:
        """Give the sender its credits back. Never from the thread that reads: writing may have to wait for the peer."""
        with self.changed:
            credits = self._unreported[group]
            if credits < REPORT:
                return
            self._unreported[group] = 0
        self._write(check, CREDIT, group << LANE_BITS, rank, 0, credits, b"")

    def forget(self, group: int) -> None:
        """A group is over: drop what arrived and what will arrive for it."""
        with self.changed:
            self._over.append(group)
            for channel in [channel for channel in self.arrived if channel >> LANE_BITS == group]:
                del self.arrived[channel]
            for table in (self.under_way, self._unreported, self._running):
                table.pop(group, None)

    def kill(self, code: int) -> None:
        with self.changed:
            self.dead = self.dead or code
            self.changed.notify_all()

    def close(self) -> None:
        self.kill(errno.ESHUTDOWN)
        with contextlib.suppress(OSError):  # the peer has ended it
            self._socket.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class _Program:
    schedule: Schedule
    dtype: torch.dtype
    reduction: Reduction


class _Run:
    def __init__(
        self, group: "_Group", program: _Program, bases: Sequence[int], tag: tuple[int, int, int], scratch: object
    ) -> None:
        self.group, self.program, self.bases, self.tag = group, program, bases, tag
        self._scratch = scratch
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
            raise _Failed(Failure(Status.MISMATCH, self.tag[0], operand.peer, 0, (), *theirs))
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
        link, channel = self.group.links[operand.peer], self.group.identity << LANE_BITS | operand.lane
        arrived = link.arrived[channel]
        self._wait(operand.peer, lambda: bool(arrived))
        return arrived.popleft()

    def _send(self, operand: Wire, payload: bytes) -> None:
        link = self.group.links[operand.peer]
        self._wait(operand.peer, lambda: link.under_way[self.group.identity] < WINDOW and not link.dead)
        channel = self.group.identity << LANE_BITS | operand.lane
        link.send(lambda: self._check(operand.peer), channel, *self.tag, payload)

    def _wait(self, peer: int, ready: Callable[[], bool]) -> None:
        link = self.group.links[peer]
        while True:
            for number, each in self.group.links.items():
                each.report(functools.partial(self._check, number), self.group.identity, self.group.rank)
            with link.changed:
                if ready():
                    return
                self._check(peer)
                link.changed.wait(TICK_SECONDS)

    def _check(self, peer: int) -> None:
        if self.group.aborted:
            raise _Failed(Failure(Status.ABORTED, self.tag[0]))
        if code := self.group.links[peer].dead:
            raise _Failed(Failure(Status.DEAD, self.tag[0], peer, code))
        if time.monotonic() >= self.deadline:
            raise _Failed(Failure(Status.TIMEOUT, self.tag[0], waiting=(peer,)))


class _Ticket:
    def __init__(self, run: _Run, timeout: float, tell: "Callable[[Ticket], None] | None" = None) -> None:
        self.run, self.timeout, self._tell = run, timeout, tell
        self.failure: Failure | None = None
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._watched = False

    def wait(self, seconds: float | None) -> bool:
        return self._done.wait(seconds)

    def watch(self) -> bool:
        with self._lock:
            self._watched = True
            return not self._done.is_set()

    def finish(self, failure: Failure | None) -> None:
        self.failure = failure
        with self._lock:
            self._done.set()
            told = self._watched or failure is not None
        tell, self._tell = self._tell, None
        if told and tell is not None:
            tell(self)


class _Group:
    """One thread runs its collectives, in order."""

    def __init__(self, identity: int, rank: int) -> None:
        self.identity, self.rank = identity, rank
        self.links: dict[int, _Link] = {}
        self.aborted = False
        self.sequence = 0
        self._failed = False
        self._waiting: deque[_Ticket | None] = deque()  # None: no more will come
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def connect(self, rank: int, link: _Link) -> None:
        self.links[rank] = link

    def bind(self, program: _Program, what: int, count: int, scratch: int) -> Launch:
        def run(source: int, target: int, timeout: float) -> Failure | None:
            ticket = ask(source, target, timeout)
            ticket.wait(None)
            return ticket.failure

        def ask(source: int, target: int, timeout: float, tell: Callable[[Ticket], None] | None = None) -> _Ticket:
            with self._changed:
                self.sequence += 1
                room = ctypes.create_string_buffer(max(scratch, 1))
                bases = source, target, ctypes.addressof(room)
                ticket = _Ticket(_Run(self, program, bases, (self.sequence, what, count), room), timeout, tell)
                if not self.aborted:
                    if self._thread is None:
                        self._thread = threading.Thread(target=self._serve, name="hetccl-group", daemon=True)
                        self._thread.start()
                    self._waiting.append(ticket)
                    self._changed.notify_all()
                    return ticket
            ticket.finish(Failure(Status.ABORTED, ticket.run.tag[0]))
            return ticket

        return Launch(run, ask)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                ticket = self._waiting.popleft()
            if ticket is None:
                return
            failure = self._execute(ticket)
            self._failed |= failure is not None
            ticket.finish(failure)
            del ticket

    def _execute(self, ticket: _Ticket) -> Failure | None:
        run = ticket.run
        if self.aborted or self._failed:
            return Failure(Status.ABORTED, run.tag[0])
        run.deadline = time.monotonic() + ticket.timeout
        try:
            for link in self.links.values():
                link.start(self.identity, run.tag[0])
            run.steps()
        except _Failed as failed:
            return failed.failure
        return None

    def abort(self) -> None:
        self.aborted = True
        for link in self.links.values():
            with link.changed:
                link.changed.notify_all()

    def close(self) -> None:
        self.abort()
        with self._changed:
            self._waiting.append(None)
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for link in self.links.values():
            link.forget(self.identity)


def reduce(sources: Sequence[torch.Tensor], reduction: Reduction, divisor: int) -> torch.Tensor:
    """Sources reduced in their order, in fp32 where they are floats of 8 or 16 bits, divided and rounded once.

    A NaN that is computed has one bit pattern.
    """
    dtype = sources[0].dtype
    if len(sources) == 1 and divisor == 1:
        return sources[0]
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else _INTEGERS.get(dtype, dtype)
    result = sources[0].to(wide)
    for source in sources[1:]:
        result = _APPLY[reduction](result, source.to(wide))
    if divisor != 1:
        result = result / divisor if dtype.is_floating_point else torch.div(result, divisor, rounding_mode="trunc")
    rounded = result.to(dtype)
    if dtype in NAN:  # torch's own casts give more than one
        raw = rounded.view(_RAW[dtype.itemsize])
        raw[result.isnan()] = NAN[dtype]
    return rounded


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

    def watch(self, aborted: Callable[[int, str], None], beat: float, limit: float) -> Watch:
        return Watch(aborted, beat, limit)

    def group(self, identity: int, rank: int, size: int) -> _Group:  # noqa: ARG002
        return _Group(identity, rank)

    def program(self, schedule: Schedule, dtype: int, reduction: int) -> _Program:
        return _Program(schedule, DTYPES[dtype], Reduction(reduction))
