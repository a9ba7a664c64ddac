"""The collectives of a group of ranks, over CPU tensors.

Tensors, or what shares its memory as one (arrays.py), are contiguous and are taken flat. Every call is the same on all
ranks of the group, in the same order; sends and receives keep an order of their own for each pair of ranks and
direction. Calls block, those in `starting` do not. What fails once fails on every rank, and the group is unusable from
then on.
"""

import hashlib
import itertools
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

import hetccl
from hetccl.arrays import Array, flat
from hetccl.bootstrap import Meeting, Store
from hetccl.calls import Call, describe, sizes_digest
from hetccl.check import compare
from hetccl.dtypes import Op, Reduction, check_reduction, code_of
from hetccl.errors import CollectiveError, HetcclError
from hetccl.handle import Handle
from hetccl.inquiry import Inquiry, missing
from hetccl.observe import trace
from hetccl.observe.recorder import Entry, Track, recorder
from hetccl.plan import Schedule, collectives
from hetccl.runners import Failure, Group, Launch, Status
from hetccl.topology import Rank, Topology
from hetccl.wires.endpoint import endpoint

__all__ = ["Communicator", "Identity"]

EAGER_RANKS = 32
"""Groups up to this size connect all pairs when they are made, so that an unreachable rank is found at once."""

EXCHANGE_BYTES = 32 << 10
"""Up to so many bytes to be sent by each rank, an all_reduce takes one hop instead of two."""

PREPARED_CALLS = 1024
"""Of each lane; beyond that the oldest are prepared anew."""

LEADER = 0
"""The rank that decides which of several reasons an abort has."""

AGREEMENT_SECONDS = 2.0


@dataclass(frozen=True)
class Identity:
    """What a rank brings along. `token` authenticates the ranks of a job to each other; `interfaces` is a rule as
    NCCL_SOCKET_IFNAME has it; without `share_memory` ranks of one host use sockets too. `checks`: compare every call on
    all ranks before data moves; it is done where any rank of the group asks for it."""

    vendor: str
    pool: str
    transport: str = "Auto"
    token: bytes = field(default=b"", repr=False)
    job: str = ""
    simulated: bool = False
    interfaces: str = ""
    share_memory: bool = True
    checks: bool = False


class _Lane:
    """One order of calls: the collectives of the group, or one direction between two of its ranks."""

    def __init__(self, group: Group, ranks: Sequence[int], track: Track) -> None:
        self.group, self.ranks, self.track = group, ranks, track
        self.numbers = itertools.count(1)
        self.connected: set[int] = set()
        self.ready: dict[Hashable, _Ready] = {}


class _Starting(threading.local):
    """Where the handles go of what this thread calls in a block of `starting`."""

    handles: list[Handle] | None = None


_Planned = tuple[Call, Schedule]


@dataclass(eq=False)
class _Ready:
    """A call that was made before: it only needs the addresses of its tensors."""

    lane: _Lane
    call: Call
    peers: frozenset[int]
    launch: Launch
    connected: bool = False


class Communicator:
    """Rank `rank` of a group of `size`, made by all of them at once. They meet in `store`, one of torch's.

    `ranks` are the numbers that they have in the world, by which messages name them; default: the same as in the group.
    `timeout` (seconds) is for joining, and for each collective that names none. Raises HetcclError where the ranks do
    not come together: then on all of them.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        identity: Identity,
        *,
        name: str,
        timeout: float,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.rank, self.size, self.name = rank, size, name
        self.ranks = tuple(range(size) if ranks is None else ranks)
        self._who = f"rank {self.ranks[rank]}"
        self._store = store  # others may still read in it, and it lives as long as somebody holds it
        self._timeout = timeout
        self._nothing = torch.empty(0, dtype=torch.uint8)  # not at import: torch may be half imported then
        self._broken: str | None = None
        self._breaking = threading.Lock()
        self._ended = threading.Event()
        self._starting = _Starting()
        self._inquiry = Inquiry(
            rank,
            recorder,
            lambda peer, text: self._endpoint.tell_abort(self.topology.ranks[peer], self._identity, text),
        )
        self._endpoint = endpoint(identity.token, identity.interfaces, share_memory=identity.share_memory)
        own = Rank(
            vendor=identity.vendor,
            pool=identity.pool,
            host=socket.gethostname(),
            simulated=identity.simulated,
            python=platform.python_version(),
            torch=torch.__version__,
            pid=os.getpid(),
            key=self._endpoint.key.hex(),
            addresses=self._endpoint.addresses,
            shares_memory=self._endpoint.shares_memory,
            release=hetccl.__version__,
            checks=identity.checks,
        )
        deadline = time.monotonic() + timeout
        meeting = Meeting(store, rank, self.ranks, identity.token, timeout, name=name)
        self.topology: Topology
        self.topology, self._identity = meeting.gather(own)
        self._wires: dict[int, str] = {}
        track = Track(f"{self._identity:x}", name, self.ranks)
        self._lane = _Lane(self._endpoint.runner.group(self._identity, rank, size), range(size), track)
        self._pairs: dict[tuple[int, int], _Lane] = {}
        self._beside = self._own_lane("beside")
        self._checks = any(each.checks for each in self.topology.ranks)
        self._checking = threading.Lock()
        self._meeting: Meeting | None = meeting
        self._endpoint.join(self._identity, self)
        if size <= EAGER_RANKS:
            try:
                self._connect(self._lane, frozenset(range(size)) - {rank}, deadline)
                self._confirm(deadline)
            except HetcclError as error:
                refusal = meeting.refuse(error)
                self.abort(str(refusal))
                self.close()
                raise refusal from None
        self._meeting = None

    # Collectives. What depends on nothing but sizes, dtypes and ops is prepared once and looked up afterwards.

    def all_reduce(self, tensor: Array, op: Op | str = Op.SUM, *, timeout: float | None = None) -> None:
        """Reduce the tensors of all ranks, elementwise, into each of them. Every rank gets the same bits."""
        tensor = flat(tensor)
        key = ("all_reduce", tensor.dtype, tensor.numel(), op)
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._all_reduce(tensor, op))
        self._run(ready, tensor, tensor, timeout)

    def _all_reduce(self, tensor: torch.Tensor, op: Op | str) -> _Planned:
        op, count = check_reduction(Op(op), tensor.dtype), tensor.numel()
        exchange = tensor.nbytes * (self.size - 1) <= EXCHANGE_BYTES
        schedule = collectives.all_reduce(self.rank, self.size, count, divisor=self._divisor(op), exchange=exchange)
        return Call("all_reduce", tensor.dtype, count, op), schedule

    def reduce(self, tensor: Array, root: int, op: Op | str = Op.SUM, *, timeout: float | None = None) -> None:
        """Reduce the tensors of all ranks into the root's; the others' stay as they are."""
        tensor = flat(tensor)
        key = ("reduce", tensor.dtype, tensor.numel(), root, op)
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._reduce(tensor, root, op))
        self._run(ready, tensor, tensor, timeout)

    def _reduce(self, tensor: torch.Tensor, root: int, op: Op | str) -> _Planned:
        op, count = check_reduction(Op(op), tensor.dtype), tensor.numel()
        call = Call("reduce", tensor.dtype, count, op, self._root(root))
        return call, collectives.reduce(self.rank, self.size, count, root, divisor=self._divisor(op))

    def reduce_scatter(
        self,
        output: Array,
        input: Array,
        op: Op | str = Op.SUM,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Reduce the inputs of all ranks; rank r gets the range of `counts[r]` elements (default: equal shares)."""
        output, input = flat(output), flat(input)
        key = ("reduce_scatter", *_pair(output, input), op, counts and tuple(counts))
        ready = self._lane.ready.get(key) or self._prepare(
            key, lambda: self._scatter_reduced(output, input, op, counts)
        )
        self._run(ready, input, output, timeout)

    def _scatter_reduced(
        self, output: torch.Tensor, input: torch.Tensor, op: Op | str, counts: Sequence[int] | None
    ) -> _Planned:
        op = check_reduction(Op(op), output.dtype)
        parts = self._counts("reduce_scatter", input, counts)
        self._expect("reduce_scatter", "output", output, parts[self.rank], input.dtype)
        call = Call("reduce_scatter", output.dtype, input.numel(), op, digest=sizes_digest(parts))
        return call, collectives.reduce_scatter(self.rank, parts, divisor=self._divisor(op))

    def all_gather(
        self,
        output: Array,
        input: Array,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Put the inputs of all ranks, counts[r] elements of rank r (default: equal shares), one after the other."""
        output, input = flat(output), flat(input)
        key = ("all_gather", *_pair(output, input), counts and tuple(counts))
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._all_gather(output, input, counts))
        self._run(ready, input, output, timeout)

    def _all_gather(self, output: torch.Tensor, input: torch.Tensor, counts: Sequence[int] | None) -> _Planned:
        parts = self._counts("all_gather", output, counts)
        self._expect("all_gather", "input", input, parts[self.rank], output.dtype)
        call = Call("all_gather", output.dtype, output.numel(), digest=sizes_digest(parts))
        return call, collectives.all_gather(self.rank, parts)

    def gather(
        self,
        output: Array | None,
        input: Array,
        root: int,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """all_gather to the root alone; the others' `output` is None."""
        output = None if output is None else flat(output)
        input = flat(input)
        key = ("gather", *_pair(output, input), root, counts and tuple(counts))
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._gather(output, input, root, counts))
        self._run(ready, input, input if output is None else output, timeout)

    def _gather(
        self, output: torch.Tensor | None, input: torch.Tensor, root: int, counts: Sequence[int] | None
    ) -> _Planned:
        parts = list(counts) if counts is not None else [input.numel()] * self.size
        self._expect("gather", "input", input, parts[self.rank], input.dtype)
        self._only_at_root("gather", "output", output, root)
        if output is not None:
            self._expect("gather", "output", output, sum(parts), input.dtype)
        call = Call("gather", input.dtype, sum(parts), None, self._root(root), sizes_digest(parts))
        return call, collectives.gather(self.rank, parts, root)

    def scatter(
        self,
        output: Array,
        input: Array | None,
        root: int,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """The root's input, counts[r] elements to rank r (default: equal shares); the others' `input` is None."""
        output = flat(output)
        input = None if input is None else flat(input)
        key = ("scatter", *_pair(input, output), root, counts and tuple(counts))
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._scatter(output, input, root, counts))
        self._run(ready, output if input is None else input, output, timeout)

    def _scatter(
        self, output: torch.Tensor, input: torch.Tensor | None, root: int, counts: Sequence[int] | None
    ) -> _Planned:
        parts = list(counts) if counts is not None else [output.numel()] * self.size
        self._expect("scatter", "output", output, parts[self.rank], output.dtype)
        self._only_at_root("scatter", "input", input, root)
        if input is not None:
            self._expect("scatter", "input", input, sum(parts), output.dtype)
        call = Call("scatter", output.dtype, sum(parts), None, self._root(root), sizes_digest(parts))
        return call, collectives.scatter(self.rank, parts, root)

    def broadcast(self, tensor: Array, root: int, *, timeout: float | None = None) -> None:
        """The root's tensor to all ranks."""
        tensor = flat(tensor)
        key = ("broadcast", tensor.dtype, tensor.numel(), root)
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._broadcast(tensor, root))
        self._run(ready, tensor, tensor, timeout)

    def _broadcast(self, tensor: torch.Tensor, root: int) -> _Planned:
        count = tensor.numel()
        call = Call("broadcast", tensor.dtype, count, None, self._root(root))
        return call, collectives.broadcast(self.rank, self.size, count, root)

    def all_to_all(
        self,
        output: Array,
        input: Array,
        received: Sequence[int] | None = None,
        sent: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """sent[r] elements of the input go to rank r, received[r] of the output come from it (default: equal)."""
        output, input = flat(output), flat(input)
        key = ("all_to_all", *_pair(output, input), received and tuple(received), sent and tuple(sent))
        ready = self._lane.ready.get(key) or self._prepare(key, lambda: self._all_to_all(output, input, received, sent))
        self._run(ready, input, output, timeout)

    def _all_to_all(
        self, output: torch.Tensor, input: torch.Tensor, received: Sequence[int] | None, sent: Sequence[int] | None
    ) -> _Planned:
        sends, receives = self._counts("all_to_all", input, sent), self._counts("all_to_all", output, received)
        self._expect("all_to_all", "output", output, output.numel(), input.dtype)
        if sends[self.rank] != receives[self.rank]:
            raise ValueError(
                f"{self._who}: all_to_all: it sends {sends[self.rank]} elements to itself and expects "
                f"{receives[self.rank]} from itself"
            )
        call = Call("all_to_all", output.dtype, 0, sent=tuple(sends), received=tuple(receives))
        return call, collectives.all_to_all(self.rank, sends, receives)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return when every rank has called it."""
        ready = self._lane.ready.get("barrier") or self._prepare("barrier", self._barrier)
        self._run(ready, self._nothing, self._nothing, timeout)

    def _barrier(self) -> _Planned:
        return Call("barrier", torch.uint8, 0), collectives.barrier(self.rank, self.size)

    def send(self, tensor: Array, peer: int, tag: int = 0, *, timeout: float | None = None) -> None:  # noqa: ARG002
        """To a peer, which receives in the order of the sends; as with NCCL, tags do not tell messages apart."""
        tensor = flat(tensor)
        lane, key = self._between(self.rank, self._peer(peer)), (tensor.dtype, tensor.numel())
        call = Call("send", *key)
        ready = lane.ready.get(key) or self._prepare(key, lambda: (call, collectives.send(1, call.count)), lane)
        self._run(ready, tensor, tensor, timeout)

    def recv(self, tensor: Array, peer: int, tag: int = 0, *, timeout: float | None = None) -> None:  # noqa: ARG002
        """From a peer: what it sends next."""
        tensor = flat(tensor)
        lane, key = self._between(self._peer(peer), self.rank), (tensor.dtype, tensor.numel())
        call = Call("send", *key)
        ready = lane.ready.get(key) or self._prepare(key, lambda: (call, collectives.receive(0, call.count)), lane)
        self._run(ready, tensor, tensor, timeout)

    @contextmanager
    def starting(self) -> Iterator[list[Handle]]:
        """What this thread calls in the block is only started: the calls return at once, their handles are in the list.

        Tensors may be used again when their handle is done.
        """
        handles: list[Handle] = []
        before, self._starting.handles = self._starting.handles, handles
        try:
            yield handles
        finally:
            self._starting.handles = before

    # The life of the group

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def wires(self) -> str:
        """The kinds of wires to the ranks that this one is connected to."""
        return ", ".join(sorted(set(self._wires.values()))) or "none yet"

    def abort(self, reason: str) -> None:
        """End what is in flight, here and on all ranks that can be told; every later call raises `reason`."""
        if not self._endpoint.inherited and self._break(reason):
            self._tell(reason)

    def close(self) -> None:
        """Release the group. What is in flight ends with an error on this rank; other ranks are not told."""
        if self._endpoint.inherited:
            return
        self._break(f"the group {self.name} was closed", failed=False)
        for lane in self._lanes():
            lane.group.close()
        self._endpoint.leave(self._identity)

    @property
    def broken(self) -> str | None:
        """Why every call raises, or None."""
        if self._broken is None and self._meeting is not None and (refusal := self._meeting.refusal()) is not None:
            self._break(str(refusal))
        return self._broken

    def on_abort(self, text: str) -> None:
        """Another rank aborted the group, or tells its leader why it should be: what the leader hears first is it. Or
        it asks what this one does, or answers."""
        if not self._inquiry.hear(text) and self._break(text) and self.rank == LEADER:
            self._tell(text)

    def _break(self, reason: str, *, failed: bool = True) -> bool:
        with self._breaking:
            if self._broken is not None:
                return False
            self._broken = reason
        self._ended.set()
        for lane in self._lanes():
            lane.group.abort()
        if failed:
            trace.dump_soon(reason)
        return True

    def _tell(self, reason: str) -> None:
        for number, peer in enumerate(self.topology.ranks):
            if number != self.rank:
                self._endpoint.tell_abort(peer, self._identity, reason)

    # Helpers

    def _lanes(self) -> list[_Lane]:
        return [self._lane, self._beside, *list(self._pairs.values())]

    def _own_lane(self, purpose: str) -> _Lane:
        """One of all ranks, beside that of the collectives: it does not take their sequence numbers."""
        group = self._endpoint.runner.group(self._tag(purpose), self.rank, self.size)
        return _Lane(group, range(self.size), self._lane.track)

    def _tag(self, purpose: str) -> int:
        """The number of a lane of this group, the same on all ranks."""
        name = f"{self._identity} {purpose}".encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=6).digest(), "big") >> 1

    def _prepare(self, key: Hashable, plan: Callable[[], _Planned], lane: _Lane | None = None) -> _Ready:
        lane = lane or self._lane
        call, schedule = plan()
        reduction = Reduction.SUM if call.reduction is None else call.reduction.reduction
        program = self._endpoint.runner.program(schedule, code_of(call.dtype), reduction)
        ready = _Ready(
            lane,
            call,
            schedule.peers,
            lane.group.bind(program, call.what, call.count, schedule.scratch * call.dtype.itemsize),
        )
        if len(lane.ready) >= PREPARED_CALLS:
            lane.ready.pop(next(iter(lane.ready)), None)
        lane.ready[key] = ready
        return ready

    def _run(self, ready: _Ready, source: torch.Tensor, target: torch.Tensor, timeout: float | None) -> None:
        if self._endpoint.inherited:
            raise HetcclError(f"{ready.call.name} was called in a forked child of {self._who}: only the parent may")
        if not (source.is_contiguous() and (target is source or target.is_contiguous())):
            raise ValueError(f"{self._who}: {ready.call.name} takes contiguous tensors: call contiguous() first")
        if not (source.is_cpu and target.is_cpu):
            raise ValueError(
                f"{self._who}: {ready.call.name} takes tensors in the CPU's memory, not on {source.device}"
            )
        if self._broken is not None:
            raise CollectiveError(self._broken)
        seconds = self._timeout if timeout is None else timeout
        entry = recorder.add(ready.lane.track, ready.call, next(ready.lane.numbers), seconds)
        try:
            left = seconds if ready.connected else self._reach(ready, seconds)
            if self._checks and ready.lane is self._lane:
                with self._checking:  # what is compared is started in the same order
                    self._launch(ready, source, target, seconds, self._compare(ready, seconds, left), entry)
            else:
                self._launch(ready, source, target, seconds, left, entry)
        except BaseException:
            entry.fail()
            raise

    def _launch(
        self, ready: _Ready, source: torch.Tensor, target: torch.Tensor, seconds: float, left: float, entry: Entry
    ) -> None:
        start = source.data_ptr()
        result = start if target is source else target.data_ptr()
        handles = self._starting.handles
        if handles is not None:
            handle = Handle(lambda failure: self._failed(failure, ready, seconds), (source, target))
            handles.append(handle.start(ready.launch, start, result, left))
            entry.follow(handle)
            return
        entry.started = time.time_ns()
        failure = ready.launch.run(start, result, left)
        entry.ended = time.time_ns()
        if failure is not None:
            entry.fail()
            raise self._failed(failure, ready, seconds)

    def _reach(self, ready: _Ready, seconds: float) -> float:
        """Connect whom a call has to do with. Returns what is left of the time."""
        deadline = time.monotonic() + seconds
        try:
            self._connect(ready.lane, ready.peers - ready.lane.connected, deadline)
        except HetcclError as error:
            text = f"{self._who}: {ready.call.describe(ready.lane.group.sequence + 1)} of group {self.name}: {error}"
            raise type(error)(self._agree(text, -1)) from None
        ready.connected = True
        return max(0.0, deadline - time.monotonic())

    def _confirm(self, deadline: float) -> None:
        """No rank has the group before all of them are connected."""
        ready = self._beside.ready.get("barrier") or self._prepare("barrier", self._barrier, self._beside)
        self._connect(self._beside, ready.peers - self._beside.connected, deadline)
        left = max(0.0, deadline - time.monotonic())
        failure = ready.launch.run(self._nothing.data_ptr(), self._nothing.data_ptr(), left)
        if failure is not None:
            raise self._failed(failure, ready, self._timeout)

    def _compare(self, ready: _Ready, seconds: float, left: float) -> float:
        """Raise, on all ranks, where they call different collectives. Returns what is `left` of the time then."""
        deadline, sequence, lane = time.monotonic() + left, self._lane.group.sequence + 1, self._beside
        failing = replace(ready, lane=lane)

        def exchange(numbers: Sequence[int]) -> list[list[int]]:
            own = torch.tensor(numbers, dtype=torch.int64)
            everybodys = torch.empty(self.size, len(numbers), dtype=torch.int64)

            def plan() -> _Planned:
                schedule = collectives.all_gather(self.rank, [len(numbers)] * self.size)
                return Call("all_gather", torch.int64, everybodys.numel()), schedule

            compared = lane.ready.get(len(numbers)) or self._prepare(len(numbers), plan, lane)
            self._connect(lane, compared.peers - lane.connected, deadline)
            time_left = max(0.0, deadline - time.monotonic())
            failure = compared.launch.run(own.data_ptr(), everybodys.data_ptr(), time_left)
            if failure is not None:
                raise self._failed(replace(failure, own=sequence), failing, seconds)
            return everybodys.tolist()

        difference = compare(ready.call, sequence, self.ranks, exchange)
        if difference is not None:
            text = f"ranks of group {self.name} call different collectives: {difference}"
            self._break(text)  # the others know it too, and say the same
            raise CollectiveError(text)
        return max(0.0, deadline - time.monotonic())

    def _connect(self, lane: _Lane, members: frozenset[int], deadline: float) -> None:
        """Link the members of a lane that are not linked yet."""
        for member in sorted(members):
            rank = lane.ranks[member]
            connection = self._endpoint.connection(self.topology.ranks[rank], self._identity, deadline)
            self._wires[rank] = connection.wire
            lane.group.connect(member, connection.link)
            lane.connected.add(member)

    def _between(self, source: int, target: int) -> _Lane:
        lane = self._pairs.get((source, target))
        if lane is None:
            with self._breaking:
                lane = self._pairs.get((source, target))
                if lane is None:
                    if self._broken is not None:
                        raise CollectiveError(self._broken)
                    tag = self._tag(f"{source} {target}")
                    group = self._endpoint.runner.group(tag, int(self.rank == target), 2)
                    lane = self._pairs[source, target] = _Lane(group, (source, target), self._way(source, target))
        return lane

    def _way(self, source: int, target: int) -> Track:
        """What goes from one rank to another, for the flight recorder."""
        ranks = self.ranks[source], self.ranks[target]
        identity = f"{self._tag(f'{source} {target}'):x}"
        return Track(identity, f"{self.name}, {ranks[0]} to {ranks[1]}", ranks, pair=True, receives=self.rank == target)

    def _failed(self, failure: Failure, ready: _Ready, seconds: float) -> HetcclError:
        lane, own = ready.lane, ready.call.describe(failure.own)
        where = f"{self._who}: {own} of group {self.name}"
        rank = lane.ranks[failure.rank] if failure.rank >= 0 else -1
        match failure.status:
            case Status.ABORTED:
                self._ended.wait(AGREEMENT_SECONDS)  # one before it failed: what is agreed of that one is the reason
                return CollectiveError(self._broken or f"{where} was aborted")
            case Status.TIMEOUT:
                text = self._timed_out(ready, failure, seconds)
            case Status.DEAD:
                text = f"{where}: {self.topology.describe([rank])} is gone ({os.strerror(failure.code)})"
            case Status.MISMATCH:
                theirs = describe(failure.what, failure.count, failure.sequence)
                text = self._different({self.rank: own, rank: theirs})
                if own == theirs:
                    text += ", of which they expect different numbers of elements from each other"
            case _:
                text = f"{where} failed: {failure.status.name.lower()}"
        lost = rank if failure.status is Status.DEAD else -1
        return CollectiveError(self._agree(text, lost))

    def _timed_out(self, ready: _Ready, failure: Failure, seconds: float) -> str:
        lane, own = ready.lane, ready.call.describe(failure.own)
        waiting = [lane.ranks[member] for member in failure.waiting]
        # Those that are waited for may wait themselves, for what the others do.
        asked = waiting if self.size > EAGER_RANKS else [rank for rank in lane.ranks if rank != self.rank]
        answers = {} if self._broken else self._inquiry.ask(lane.track, failure.own, asked)
        different = {rank: answer.same for rank, answer in answers.items() if answer.same not in ("", own)}
        if different:
            return self._different({self.rank: own, **different})
        behind = {rank for rank, answer in answers.items() if not answer.same}
        reasons = (
            missing(self.topology.describe([rank]), failure.own, answers.get(rank))
            for rank in sorted(behind.union(waiting))
        )
        where = f"{self._who}: {own} of group {self.name}"
        return f"{where} timed out after {seconds:g} s, waiting for {'; '.join(reasons)}"

    def _different(self, calls: Mapping[int, str]) -> str:
        said = "; ".join(f"rank {self.ranks[rank]}: {call}" for rank, call in sorted(calls.items()))
        return f"ranks of group {self.name} call different collectives: {said}"

    def _agree(self, text: str, lost: int) -> str:
        """Abort the group with the same text on all ranks: the leader's, which several may tell at once.

        Where the leader itself is the rank that was `lost`, or has no time, this rank's own must do.
        """
        if LEADER not in (self.rank, lost):
            self._endpoint.tell_abort(self.topology.ranks[LEADER], self._identity, text)
            self._ended.wait(AGREEMENT_SECONDS)
        self.abort(text)
        trace.settle()
        return self._broken or text

    def _divisor(self, op: Op) -> int:
        return self.size if op is Op.AVG else 1

    def _root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise ValueError(f"root {root} is not a rank of group {self.name}, which has {self.size}")
        return root

    def _peer(self, peer: int) -> int:
        if self._root(peer) == self.rank:
            raise ValueError(f"{self._who} cannot send to itself or receive from itself")
        return peer

    def _counts(self, name: str, whole: torch.Tensor, counts: Sequence[int] | None) -> list[int]:
        elements = whole.numel()
        if counts is None:
            if elements % self.size:
                raise ValueError(
                    f"{name}: {elements} elements cannot be shared equally by {self.size} ranks: pass counts"
                )
            return [elements // self.size] * self.size
        if len(counts) != self.size or sum(counts) != elements or min(counts) < 0:
            raise ValueError(f"{name}: counts {list(counts)} are not {self.size} numbers with the sum {elements}")
        return list(counts)

    def _only_at_root(self, name: str, role: str, tensor: torch.Tensor | None, root: int) -> None:
        if (tensor is not None) != (self.rank == root):
            raise ValueError(
                f"{self._who}: {name} takes an {role} at its root, rank {self.ranks[root]}, and nowhere else"
            )

    def _expect(self, name: str, role: str, tensor: torch.Tensor, count: int, dtype: torch.dtype) -> None:
        if tensor.numel() != count or tensor.dtype != dtype:
            raise ValueError(
                f"{self._who}: the {role} of {name} is {tensor.numel()} x {tensor.dtype}; expected {count} x {dtype}"
            )


def _pair(one: torch.Tensor | None, other: torch.Tensor) -> tuple[Hashable, ...]:
    return (None if one is None else (one.dtype, one.numel()), other.dtype, other.numel())
