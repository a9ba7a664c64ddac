"""A process group whose ranks may be of several vendors: torch.distributed's calls, carried out by a communicator.

Sends and receives of one peer keep their order among themselves; everything else of the group has one order, in which
the calls were made. An operation that was asked for with async_op=False runs in the calling thread.
"""

# mypy: disable-error-code="override, assignment"
# torch's stubs of these methods change from release to release, and list forms that torch.distributed never uses.

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroup, Store

from hetccl.communicator import Communicator
from hetccl.torch import collectives
from hetccl.torch.reductions import reduction
from hetccl.torch.tensors import check, is_flat, one, readable, writable
from hetccl.torch.work import Lane, Operation, Starting

DRAIN_SECONDS = 10.0
"""How long destroy_process_group waits for operations in flight before it aborts them."""


class HetProcessGroup(ProcessGroup):
    """The group of `communicator`. Raises DistBackendError where an operation fails, on every rank of the group."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    uid = -1

    def __init__(self, communicator: Communicator, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.communicator = communicator
        self.on_close: list[Callable[[], None]] = []
        self._store = store
        self._timeout = timeout
        self._extension = timedelta(0)
        self._name = ""
        self._description = ""
        self._process = os.getpid()
        self._collectives = Lane("collectives")
        self._peers: dict[tuple[str, int], Lane] = {}
        self._coalesced: list[Operation] | None = None

    # Collectives: the new names first; the older ones of torch 2.6 to 2.12 are the same methods.

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Operation:
        tensor, op = one("all_reduce", tensors), reduction(opts)

        def call(seconds: float) -> None:
            with writable(tensor) as flat:
                self.communicator.all_reduce(flat, op, timeout=seconds)

        return self._collective("all_reduce", call, opts, [tensor], [tensor])

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Operation:
        check("all_reduce_coalesced", tensors)
        op = reduction(opts)

        def call(seconds: float) -> None:
            for tensor in tensors:
                with writable(tensor) as flat:
                    self.communicator.all_reduce(flat, op, timeout=seconds)

        return self._collective("all_reduce_coalesced", call, opts, tensors, tensors)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Operation:
        tensor, root = one("broadcast", tensors), _root(opts)

        def call(seconds: float) -> None:
            with writable(tensor) as flat:
                self.communicator.broadcast(flat, root, timeout=seconds)

        return self._collective("broadcast", call, opts, [tensor], [tensor])

    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Operation:
        tensor, op, root = one("reduce", tensors), reduction(opts), _root(opts)

        def call(seconds: float) -> None:
            with writable(tensor) if self.rank() == root else nullcontext(readable(tensor)) as flat:
                self.communicator.reduce(flat, root, op, timeout=seconds)

        return self._collective("reduce", call, opts, [tensor], [tensor])

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Operation:
        tensor, parts = one("all_gather", inputs), self._parts("all_gather", outputs)

        def call(seconds: float) -> None:
            collectives.all_gather(self.communicator, parts, tensor, timeout=seconds)

        return self._collective("all_gather", call, opts, parts)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Operation:
        check("all_gather_coalesced", inputs)
        lists = [[output[index] for output in outputs] for index in range(len(inputs))]

        def call(seconds: float) -> None:
            for parts, tensor in zip(lists, inputs, strict=True):
                collectives.all_gather(self.communicator, parts, tensor, timeout=seconds)

        return self._collective("all_gather_coalesced", call, opts, [part for parts in lists for part in parts])

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Operation:
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Operation:
        name = "all_gather_into_tensor"
        check(name, [*outputs, *inputs])
        for output, input in zip(outputs, inputs, strict=True):
            self._expect(name, "output", output, input.numel() * self.size())

        def call(seconds: float) -> None:
            for output, input in zip(outputs, inputs, strict=True):
                with writable(output) as flat:
                    self.communicator.all_gather(flat, readable(input), timeout=seconds)

        return self._collective(name, call, opts, outputs, [*outputs, *inputs])

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Operation:
        tensor, root = one("gather", inputs), _root(opts)
        parts = self._parts("gather", outputs) if self.rank() == root else []

        def call(seconds: float) -> None:
            collectives.gather(self.communicator, parts, tensor, root, timeout=seconds)

        return self._collective("gather", call, opts, parts)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None) -> Operation:
        tensor, root = one("scatter", outputs), _root(opts)
        parts = self._parts("scatter", inputs) if self.rank() == root else []

        def call(seconds: float) -> None:
            collectives.scatter(self.communicator, tensor, parts, root, timeout=seconds)

        return self._collective("scatter", call, opts, [tensor])

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> Operation:
        tensor, parts, op = one("reduce_scatter", outputs), self._parts("reduce_scatter", inputs), reduction(opts)

        def call(seconds: float) -> None:
            collectives.reduce_scatter(self.communicator, tensor, parts, op, timeout=seconds)

        return self._collective("reduce_scatter", call, opts, [tensor])

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Operation:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Operation:
        name, op = "reduce_scatter_tensor", reduction(opts)
        check(name, [*outputs, *inputs])
        for output, input in zip(outputs, inputs, strict=True):
            self._expect(name, "input", input, output.numel() * self.size())

        def call(seconds: float) -> None:
            for output, input in zip(outputs, inputs, strict=True):
                with writable(output) as flat:
                    self.communicator.reduce_scatter(flat, readable(input), op, timeout=seconds)

        return self._collective(name, call, opts, outputs, [*outputs, *inputs])

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Operation:
        check("all_to_all_single", [output, input])
        received = collectives.split("all_to_all_single", "output", output, output_splits, self.size())
        sent = collectives.split("all_to_all_single", "input", input, input_splits, self.size())

        def call(seconds: float) -> None:
            with writable(output) as flat:
                self.communicator.all_to_all(flat, readable(input), received, sent, timeout=seconds)

        return self._collective("all_to_all_single", call, opts, [output], [output, input])

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Operation:
        received, sent = self._parts("all_to_all", [outputs]), self._parts("all_to_all", [inputs])

        def call(seconds: float) -> None:
            collectives.all_to_all(self.communicator, received, sent, timeout=seconds)

        return self._collective("all_to_all", call, opts, outputs)

    def barrier(self, opts: Any = None) -> Operation:
        return self._collective("barrier", lambda seconds: self.communicator.barrier(timeout=seconds), opts, touched=[])

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Between two ranks

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> Operation:
        tensor, seconds = one("send", tensors), self._seconds(None)

        def call() -> None:
            self.communicator.send(readable(tensor), peer, tag, timeout=seconds)

        return self._submit(
            self._lane("send", peer), Operation("send", call, [tensor], starting=self._starting([tensor]))
        )

    def recv(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> Operation:
        tensor, seconds = one("recv", tensors), self._seconds(None)

        def call() -> None:
            with writable(tensor) as flat:
                self.communicator.recv(flat, peer, tag, timeout=seconds)

        return self._submit(self._lane("recv", peer), Operation("recv", call, [tensor], peer, self._starting([tensor])))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Operation:
        raise NotImplementedError('hetccl: recv without a source rank is not supported, as with "nccl": name the rank')

    # Coalescing: the operations between start and end are waited for together.

    def _start_coalescing(self, _device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, _device: torch.device) -> Operation:
        operations, self._coalesced = self._coalesced or [], None

        def call() -> None:
            for operation in operations:
                operation.wait()

        together = Operation("coalesced operations", call)
        self._lane("coalesced", self.rank()).submit(together)
        return together

    # The life of the group

    def shutdown(self) -> None:
        """Let what is in flight end, for DRAIN_SECONDS at most, and release everything. Always returns."""
        if self._in_child():
            return
        deadline = time.monotonic() + DRAIN_SECONDS
        for lane in (self._collectives, *self._peers.values()):
            if not lane.drain(max(0.0, deadline - time.monotonic())):
                self.abort()
                return
        self._release()
        self.communicator.close()

    def abort(self) -> None:
        """End what is in flight with an error, here and on the other ranks, and release everything."""
        if not self._in_child():
            self.communicator.abort("the process group was aborted")
            self._release()

    _shutdown = shutdown

    def _release(self) -> None:
        while self.on_close:
            self.on_close.pop()()

    def _in_child(self) -> bool:
        return os.getpid() != self._process

    # What torch.distributed asks of "nccl"

    def name(self) -> str:
        return "nccl"

    getBackendName = _get_backend_name = name

    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    @property
    def group_desc(self) -> str:
        return self._description

    def getGroupDesc(self) -> str:
        return self._description

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    setGroupDesc = _set_group_desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    def _get_backend(self, _device: torch.device) -> "HetProcessGroup":
        return self

    def get_group_store(self) -> Store:
        return self._store

    def _has_hooks(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        """Sequence numbers are the communicator's."""

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    set_timeout = _set_default_timeout

    def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
        self._extension += timeout

    def _group_start(self) -> None:
        """NCCL groups its calls by hand; ours need no grouping."""

    _group_end = _group_start

    # Helpers

    def _collective(
        self,
        name: str,
        call: Callable[[float], None],
        opts: Any,
        outputs: Sequence[Tensor] = (),
        touched: Sequence[Tensor] | None = None,
    ) -> Operation:
        """`touched`: the tensors that `call` hands to the communicator, where it does nothing else."""
        seconds = self._seconds(opts)
        operation = Operation(name, lambda: call(seconds), outputs, starting=self._starting(touched))
        if getattr(opts, "asyncOp", True) or self._coalesced is not None:
            return self._submit(self._collectives, operation)
        self._refuse_in_child(name)
        self._collectives.run(operation)
        return operation

    def _starting(self, touched: Sequence[Tensor] | None) -> Starting | None:
        """How to start a call that touches these, where the communicator takes them as they are."""
        plain = touched is not None and all(is_flat(tensor) for tensor in touched)
        return self.communicator.starting if plain else None

    def _submit(self, lane: Lane, operation: Operation) -> Operation:
        self._refuse_in_child(operation.name)
        if self._coalesced is not None:
            self._coalesced.append(operation)
        lane.submit(operation)
        return operation

    def _lane(self, direction: str, peer: int) -> Lane:
        return self._peers.setdefault((direction, peer), Lane(f"{direction}-{peer}"))

    def _seconds(self, opts: Any) -> float:
        timeout: timedelta = getattr(opts, "timeout", timedelta(0))
        if timeout > timedelta(0):
            return timeout.total_seconds()
        extension, self._extension = self._extension, timedelta(0)
        return (self._timeout + extension).total_seconds()

    def _parts(self, name: str, lists: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        if len(lists) != 1 or len(lists[0]) != self.size():
            raise ValueError(
                f"hetccl: {name} takes one list of {self.size()} tensors, one a rank of the group; "
                f"it got {[len(parts) for parts in lists]}"
            )
        check(name, lists[0])
        return list(lists[0])

    def _expect(self, name: str, role: str, tensor: Tensor, elements: int) -> None:
        if tensor.numel() != elements:
            raise ValueError(
                f"hetccl: the {role} of {name} has {tensor.numel()} elements; "
                f"with {self.size()} ranks it must have {elements}"
            )

    def _refuse_in_child(self, name: str) -> None:
        if self._in_child():
            raise RuntimeError(
                f"hetccl: {name} was called in a forked child of the rank's process; only that process can take part"
            )


def _root(opts: Any) -> int:
    return 0 if opts is None else int(opts.rootRank)
