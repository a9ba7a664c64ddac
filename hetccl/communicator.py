"""The collectives of a group of ranks, over CPU tensors, blocking in the caller's thread.

Tensors are contiguous and are taken flat. Every call is the same on all ranks of the group, in the same order; sends
and receives keep an order of their own for each pair of ranks and direction. What fails once fails on every rank, and
the group is unusable from then on.
"""

import hashlib
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import hetccl
from hetccl.bootstrap import Store, gather
from hetccl.dtypes import DTYPES, Op, Reduction, check_reduction, code_of
from hetccl.errors import CollectiveError, HetcclError
from hetccl.plan import Schedule, collectives
from hetccl.runners import Failure, Group, Status
from hetccl.topology import Rank, Topology
from hetccl.wires.endpoint import endpoint

__all__ = ["Communicator", "Identity"]

EAGER_RANKS = 32
"""Groups up to this size connect all pairs when they are made, so that an unreachable rank is found at once."""

EXCHANGE_BYTES = 32 << 10
"""Up to so many bytes to be sent by each rank, an all_reduce takes one hop instead of two."""

CACHED_PROGRAMS = 1024

LEADER = 0
"""The rank that decides which of several reasons an abort has."""

AGREEMENT_SECONDS = 2.0

_NAMES = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "barrier",
    "send",
)


@dataclass(frozen=True)
class Identity:
    """What a rank brings along. `token` authenticates the ranks of a job to each other; `interfaces` is a rule as
    NCCL_SOCKET_IFNAME has it; without `share_memory` ranks of one host use sockets too."""

    vendor: str
    pool: str
    transport: str = "Auto"
    token: bytes = field(default=b"", repr=False)
    job: str = ""
    simulated: bool = False
    interfaces: str = ""
    share_memory: bool = True


@dataclass(frozen=True)
class _Call:
    """A collective as it is asked for: what all ranks must agree on, and how an error names it."""

    name: str
    dtype: torch.dtype
    count: int
    reduction: Op | None = None
    root: int = 0
    digest: int = 0

    @property
    def what(self) -> int:
        """Packed into 64 bits; `unpack` is the reverse."""
        reduction = 0 if self.reduction is None else 1 + list(Op).index(self.reduction)
        fields = (
            (_NAMES.index(self.name), 8),
            (code_of(self.dtype), 8),
            (reduction, 8),
            (self.root, 16),
            (self.digest, 24),
        )
        packed = 0
        for value, bits in fields:
            packed = packed << bits | (value & ((1 << bits) - 1))
        return packed

    def describe(self, sequence: int) -> str:
        return describe(self.what, self.count, sequence)


def describe(what: int, count: int, sequence: int) -> str:
    """A collective in words, from what its messages carry."""
    name = _NAMES[what >> 56] if what >> 56 < len(_NAMES) else "an unknown collective"
    reduction, root = what >> 40 & 0xFF, what >> 24 & 0xFFFF
    details = []
    if name != "barrier":
        details.append(f"{count} x {_dtype_name(what >> 48 & 0xFF)}")
    if reduction:
        details.append(list(Op)[reduction - 1].value)
    if name in ("reduce", "gather", "scatter", "broadcast"):
        details.append(f"root {root}")
    digest = what & 0xFFFFFF
    if digest:
        details.append(f"sizes {digest:06x}")
    return f"{name} #{sequence}" + (f" ({', '.join(details)})" if details else "")


def _dtype_name(code: int) -> str:
    return str(DTYPES[code]).removeprefix("torch.") if code < len(DTYPES) else "unknown"


def _digest(*values: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=3).digest(), "big")


class _Lane:
    """One order of calls: the collectives of the group, or one direction between two of its ranks."""

    def __init__(self, group: Group, ranks: Sequence[int]) -> None:
        self.group, self.ranks = group, ranks
        self.sequence = 0
        self.lock = threading.Lock()
        self.connected: set[int] = set()
        self.programs: dict[Hashable, tuple[Any, frozenset[int]]] = {}


class Communicator:
    """Rank `rank` of a group of `size`, made by all of them at once. They meet in `store`, one of torch's.

    `timeout` (seconds) is for joining, and for each collective that names none. Raises HetcclError where the ranks do
    not come together.
    """

    def __init__(self, store: Store, rank: int, size: int, identity: Identity, *, name: str, timeout: float) -> None:
        self.rank, self.size, self.name = rank, size, name
        self._timeout = timeout
        self._process = os.getpid()
        self._broken: str | None = None
        self._breaking = threading.Lock()
        self._ended = threading.Event()
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
        )
        deadline = time.monotonic() + timeout
        self.topology: Topology
        self.topology, self._identity = gather(store, rank, size, own, identity.token, timeout)
        self._wires: dict[int, str] = {}
        self._lane = _Lane(self._endpoint.runner.group(self._identity, rank, size), range(size))
        self._pairs: dict[tuple[int, int], _Lane] = {}
        self._endpoint.join(self._identity, self)
        if size <= EAGER_RANKS:
            try:
                self._connect(self._lane, frozenset(range(size)) - {rank}, deadline)
            except HetcclError as error:
                self.abort(f"rank {rank}: {error}")
                raise

    # Collectives

    def all_reduce(self, tensor: torch.Tensor, op: Op | str = Op.SUM, *, timeout: float | None = None) -> None:
        """Reduce the tensors of all ranks, elementwise, into each of them. Every rank gets the same bits."""
        dtype, count, op = tensor.dtype, tensor.numel(), check_reduction(Op(op), tensor.dtype)
        exchange = count * tensor.element_size() * (self.size - 1) <= EXCHANGE_BYTES
        call = _Call("all_reduce", dtype, count, op)
        self._run(
            call,
            lambda: collectives.all_reduce(self.rank, self.size, count, divisor=self._divisor(op), exchange=exchange),
            tensor,
            tensor,
            timeout,
        )

    def reduce(self, tensor: torch.Tensor, root: int, op: Op | str = Op.SUM, *, timeout: float | None = None) -> None:
        """Reduce the tensors of all ranks into the root's; the others' stay as they are."""
        op = check_reduction(Op(op), tensor.dtype)
        count = tensor.numel()
        call = _Call("reduce", tensor.dtype, count, op, self._root(root))
        self._run(
            call,
            lambda: collectives.reduce(self.rank, self.size, count, root, divisor=self._divisor(op)),
            tensor,
            tensor,
            timeout,
        )

    def reduce_scatter(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: Op | str = Op.SUM,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Reduce the inputs of all ranks; rank r gets the range of `counts[r]` elements (default: equal shares)."""
        op = check_reduction(Op(op), output.dtype)
        parts = self._counts("reduce_scatter", input, counts)
        self._expect("reduce_scatter", "output", output, parts[self.rank], input.dtype)
        call = _Call("reduce_scatter", output.dtype, input.numel(), op, digest=_sizes(parts))
        self._run(
            call,
            lambda: collectives.reduce_scatter(self.rank, parts, divisor=self._divisor(op)),
            input,
            output,
            timeout,
        )

    def all_gather(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Put the inputs of all ranks, counts[r] elements of rank r (default: equal shares), one after the other."""
        parts = self._counts("all_gather", output, counts)
        self._expect("all_gather", "input", input, parts[self.rank], output.dtype)
        call = _Call("all_gather", output.dtype, output.numel(), digest=_sizes(parts))
        self._run(call, lambda: collectives.all_gather(self.rank, parts), input, output, timeout)

    def gather(
        self,
        output: torch.Tensor | None,
        input: torch.Tensor,
        root: int,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """all_gather to the root alone; the others' `output` is None."""
        parts = list(counts) if counts is not None else [input.numel()] * self.size
        self._expect("gather", "input", input, parts[self.rank], input.dtype)
        if output is not None:
            self._expect("gather", "output", output, sum(parts), input.dtype)
        call = _Call("gather", input.dtype, sum(parts), None, self._root(root), _sizes(parts))
        target = input if output is None else output
        self._run(call, lambda: collectives.gather(self.rank, parts, root), input, target, timeout)

    def scatter(
        self,
        output: torch.Tensor,
        input: torch.Tensor | None,
        root: int,
        counts: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """The root's input, counts[r] elements to rank r (default: equal shares); the others' `input` is None."""
        parts = list(counts) if counts is not None else [output.numel()] * self.size
        self._expect("scatter", "output", output, parts[self.rank], output.dtype)
        if input is not None:
            self._expect("scatter", "input", input, sum(parts), output.dtype)
        call = _Call("scatter", output.dtype, sum(parts), None, self._root(root), _sizes(parts))
        source = output if input is None else input
        self._run(call, lambda: collectives.scatter(self.rank, parts, root), source, output, timeout)

    def broadcast(self, tensor: torch.Tensor, root: int, *, timeout: float | None = None) -> None:
        """The root's tensor to all ranks."""
        count = tensor.numel()
        call = _Call("broadcast", tensor.dtype, count, None, self._root(root))
        self._run(call, lambda: collectives.broadcast(self.rank, self.size, count, root), tensor, tensor, timeout)

    def all_to_all(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        received: Sequence[int] | None = None,
        sent: Sequence[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """sent[r] elements of the input go to rank r, received[r] of the output come from it (default: equal)."""
        sends, receives = self._counts("all_to_all", input, sent), self._counts("all_to_all", output, received)
        if input.dtype != output.dtype:
            self._expect("all_to_all", "output", output, output.numel(), input.dtype)
        call = _Call("all_to_all", output.dtype, 0)
        key = (call, tuple(sends), tuple(receives))
        self._run(call, lambda: collectives.all_to_all(self.rank, sends, receives), input, output, timeout, key=key)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return when every rank has called it."""
        nothing = torch.empty(0, dtype=torch.uint8)
        call = _Call("barrier", torch.uint8, 0)
        self._run(call, lambda: collectives.barrier(self.rank, self.size), nothing, nothing, timeout)

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0, *, timeout: float | None = None) -> None:  # noqa: ARG002
        """To a peer, which receives in the order of the sends; as with NCCL, tags do not tell messages apart."""
        call = _Call("send", tensor.dtype, tensor.numel())
        lane = self._pair(self.rank, self._peer(peer))
        self._run(call, lambda: collectives.send(1, call.count), tensor, tensor, timeout, lane=lane)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0, *, timeout: float | None = None) -> None:  # noqa: ARG002
        """From a peer: what it sends next."""
        call = _Call("send", tensor.dtype, tensor.numel())
        lane = self._pair(self._peer(peer), self.rank)
        self._run(call, lambda: collectives.receive(0, call.count), tensor, tensor, timeout, lane=lane)

    # The life of the group

    @property
    def wires(self) -> str:
        """The kinds of wires to the ranks that this one is connected to."""
        return ", ".join(sorted(set(self._wires.values()))) or "none yet"

    def abort(self, reason: str) -> None:
        """End what is in flight, here and on all ranks that can be told; every later call raises `reason`."""
        if os.getpid() == self._process and self._break(reason):
            self._tell(reason)

    def close(self) -> None:
        """Release the group. What is in flight ends with an error on this rank; other ranks are not told."""
        if os.getpid() != self._process:
            return
        self._break(f"the group {self.name} was closed")
        self._endpoint.leave(self._identity)
        for lane in (self._lane, *self._pairs.values()):
            lane.group.close()

    def on_abort(self, text: str) -> None:
        """Another rank aborted the group, or tells its leader why it should be: what the leader hears first is it."""
        if self._break(text) and self.rank == LEADER:
            self._tell(text)

    def _break(self, reason: str) -> bool:
        with self._breaking:
            if self._broken is not None:
                return False
            self._broken = reason
        self._ended.set()
        for lane in (self._lane, *list(self._pairs.values())):
            lane.group.abort()
        return True

    def _tell(self, reason: str) -> None:
        for number, peer in enumerate(self.topology.ranks):
            if number != self.rank:
                self._endpoint.tell_abort(peer, self._identity, reason)

    # Helpers

    def _run(
        self,
        call: _Call,
        plan: Callable[[], Schedule],
        source: torch.Tensor,
        target: torch.Tensor,
        timeout: float | None,
        *,
        key: Hashable = None,
        lane: _Lane | None = None,
    ) -> None:
        if os.getpid() != self._process:
            raise HetcclError(f"{call.name} was called in a forked child of rank {self.rank}: only the parent may")
        if not (source.is_contiguous() and target.is_contiguous()):
            raise ValueError(f"rank {self.rank}: {call.name} takes contiguous tensors: call contiguous() first")
        lane = lane or self._lane
        seconds = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        with lane.lock:
            if self._broken is not None:
                raise CollectiveError(self._broken)
            lane.sequence += 1
            program, peers = self._program(lane, call, key or call, plan)
            if not peers <= lane.connected:
                self._connect(lane, peers - lane.connected, deadline)
            bases = (source.data_ptr(), target.data_ptr(), 0)
            left = max(0.0, deadline - time.monotonic())
            failure = lane.group.run(program, bases, lane.sequence, call.what, call.count, left)
        if failure is not None:
            raise self._failed(failure, call, lane, seconds)

    def _program(
        self, lane: _Lane, call: _Call, key: Hashable, plan: Callable[[], Schedule]
    ) -> tuple[Any, frozenset[int]]:
        found = lane.programs.get(key)
        if found is None:
            if len(lane.programs) >= CACHED_PROGRAMS:
                del lane.programs[next(iter(lane.programs))]
            schedule = plan()
            reduction = Reduction.SUM if call.reduction is None else call.reduction.reduction
            program = self._endpoint.runner.program(schedule, code_of(call.dtype), reduction)
            found = lane.programs[key] = (program, schedule.peers)
        return found

    def _connect(self, lane: _Lane, members: frozenset[int], deadline: float) -> None:
        """Link the members of a lane that are not linked yet, in an order in which no two ranks wait for each other."""
        for member in sorted(members):
            rank = lane.ranks[member]
            connection = self._endpoint.connection(self.topology.ranks[rank], deadline)
            self._wires[rank] = connection.wire
            lane.group.connect(member, connection.link)
            lane.connected.add(member)

    def _pair(self, source: int, target: int) -> _Lane:
        lane = self._pairs.get((source, target))
        if lane is None:
            with self._breaking:
                lane = self._pairs.get((source, target))
                if lane is None:
                    name = f"{self._identity} {source} {target}".encode()
                    identity = int.from_bytes(hashlib.blake2b(name, digest_size=6).digest(), "big") >> 1
                    group = self._endpoint.runner.group(identity, int(self.rank == target), 2)
                    lane = self._pairs[source, target] = _Lane(group, (source, target))
        return lane

    def _failed(self, failure: Failure, call: _Call, lane: _Lane, seconds: float) -> HetcclError:
        own = call.describe(lane.sequence)
        where = f"rank {self.rank}: {own} of group {self.name}"
        rank = lane.ranks[failure.rank] if failure.rank >= 0 else -1
        match failure.status:
            case Status.ABORTED:
                return CollectiveError(self._broken or f"{where} was aborted")
            case Status.BUSY:
                return CollectiveError(f"{where} was called while another collective of the group runs")
            case Status.TIMEOUT:
                waiting = [lane.ranks[member] for member in failure.waiting]
                text = f"{where} timed out after {seconds:g} s, waiting for {self.topology.describe(waiting)}"
            case Status.DEAD:
                text = f"{where}: {self.topology.describe([rank])} is gone ({os.strerror(failure.code)})"
            case Status.MISMATCH:
                theirs = describe(failure.what, failure.count, failure.sequence)
                said = sorted([(self.rank, own), (rank, theirs)])
                text = f"ranks of group {self.name} call different collectives: " + "; ".join(
                    f"rank {number}: {what}" for number, what in said
                )
                if own == theirs:
                    text += ", of which they expect different numbers of elements from each other"
            case _:
                text = f"{where} failed: {failure.status.name.lower()}"
        lost = rank if failure.status is Status.DEAD else -1
        return CollectiveError(self._agree(text, lost))

    def _agree(self, text: str, lost: int) -> str:
        """Abort the group with the same text on all ranks: the leader's, which several may tell at once.

        Where the leader itself is the rank that was `lost`, or has no time, this rank's own must do.
        """
        if LEADER not in (self.rank, lost):
            self._endpoint.tell_abort(self.topology.ranks[LEADER], self._identity, text)
            self._ended.wait(AGREEMENT_SECONDS)
        self.abort(text)
        return self._broken or text

    def _divisor(self, op: Op) -> int:
        return self.size if op is Op.AVG else 1

    def _root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise ValueError(f"root {root} is not a rank of group {self.name}, which has {self.size}")
        return root

    def _peer(self, peer: int) -> int:
        if self._root(peer) == self.rank:
            raise ValueError(f"rank {peer} cannot send to itself or receive from itself")
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

    def _expect(self, name: str, role: str, tensor: torch.Tensor, count: int, dtype: torch.dtype) -> None:
        if tensor.numel() != count or tensor.dtype != dtype:
            raise ValueError(
                f"rank {self.rank}: the {role} of {name} is {tensor.numel()} x {tensor.dtype}; "
                f"expected {count} x {dtype}"
            )


def _sizes(counts: Sequence[int]) -> int:
    """Tells uneven sizes apart; equal ones need no telling."""
    return 0 if len(set(counts)) <= 1 else _digest(*counts)
