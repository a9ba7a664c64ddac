"""Who carries a case out: hetccl by its own API, hetccl through torch.distributed, and the peers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from hetccl.bench.cases import Buffers
from hetccl.communicator import Communicator

__all__ = ["Call", "copy", "gloo", "openmpi", "ours", "through_torch"]

Call = Callable[[], object]


def ours(communicator: Communicator, case: str, buffers: Buffers) -> Call:
    """The public API's own call."""
    source, target = buffers.input, buffers.output
    calls: dict[str, Call] = {
        "all_reduce": lambda: communicator.all_reduce(target),
        "all_gather": lambda: communicator.all_gather(target, source),
        "reduce_scatter": lambda: communicator.reduce_scatter(target, source),
        "broadcast": lambda: communicator.broadcast(target, 0),
        "all_to_all": lambda: communicator.all_to_all(target, source),
    }
    return calls[case]


def through_torch(group: dist.ProcessGroup, case: str, buffers: Buffers, *, wait: bool = True) -> Callable[[], Any]:
    """torch.distributed's call on a group; without `wait` it returns the Work."""
    source, target, later = buffers.input, buffers.output, not wait
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(target, group=group, async_op=later),
        "all_gather": lambda: dist.all_gather_into_tensor(target, source, group=group, async_op=later),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(target, source, group=group, async_op=later),
        "broadcast": lambda: dist.broadcast(target, 0, group=group, async_op=later),
        "all_to_all": lambda: dist.all_to_all_single(target, source, group=group, async_op=later),
    }
    return calls[case]


gloo = through_torch


def copy(buffers: Buffers) -> Call:
    """A copy of as many bytes as the larger buffer has: what the bound is made of."""
    source = max(buffers.input, buffers.output, key=lambda buffer: buffer.nbytes)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def openmpi(case: str, buffers: Buffers) -> Call:
    """mpi4py's buffer calls on the same memory."""
    from mpi4py import MPI  # noqa: PLC0415 - only where this peer was asked for

    world = MPI.COMM_WORLD
    kinds = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE, torch.int32: MPI.INT32_T, torch.int64: MPI.INT64_T}
    if buffers.output.dtype not in kinds:
        raise ValueError(f"Open MPI reduces no {buffers.output.dtype}; it is compared for {', '.join(map(str, kinds))}")
    kind = kinds[buffers.output.dtype]
    source, target = [buffers.input.numpy(), kind], [buffers.output.numpy(), kind]
    calls: dict[str, Call] = {
        "all_reduce": lambda: world.Allreduce(MPI.IN_PLACE, target),
        "all_gather": lambda: world.Allgather(source, target),
        "reduce_scatter": lambda: world.Reduce_scatter_block(source[0], target[0]),
        "broadcast": lambda: world.Bcast(target, 0),
        "all_to_all": lambda: world.Alltoall(source, target),
    }
    return calls[case]
