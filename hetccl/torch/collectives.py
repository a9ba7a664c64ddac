"""Collectives over lists of tensors, and those that are made of other collectives.

gather, scatter, reduce and all_to_all move more than they need to: they are made of all_gather, broadcast and
all_reduce, in the one order of the group.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from hetccl.communicator import Communicator
from hetccl.torch.tensors import joined, readable, sizes, spread, writable


def all_gather(communicator: Communicator, outputs: Sequence[Tensor], input: Tensor, *, timeout: float) -> None:
    """Each rank's input to the output of its rank; the sizes may differ."""
    gathered = torch.empty(sum(sizes(outputs)), dtype=_element(input))
    communicator.all_gather(gathered, readable(input), sizes(outputs), timeout=timeout)
    spread(gathered, outputs)


def reduce_scatter(
    communicator: Communicator, output: Tensor, inputs: Sequence[Tensor], op: str, *, timeout: float
) -> None:
    """The reduction of all ranks' inputs for a rank to its output; the sizes may differ."""
    with writable(output) as flat:
        communicator.reduce_scatter(flat, joined(inputs), op, sizes(inputs), timeout=timeout)


def reduce(communicator: Communicator, tensor: Tensor, op: str, *, timeout: float, keep: bool) -> None:
    """An all_reduce whose result only the rank that says `keep` writes to its tensor."""
    if keep:
        with writable(tensor) as flat:
            communicator.all_reduce(flat, op, timeout=timeout)
    else:
        communicator.all_reduce(readable(tensor).clone(), op, timeout=timeout)


def gather(communicator: Communicator, outputs: Sequence[Tensor], input: Tensor, *, timeout: float) -> None:
    """Every rank's input, all of one size, to the outputs of the rank that has any."""
    flat = readable(input)
    gathered = flat.new_empty(flat.numel() * communicator.size)
    communicator.all_gather(gathered, flat, timeout=timeout)
    if outputs:
        spread(gathered, outputs)


def scatter(
    communicator: Communicator,
    output: Tensor,
    inputs: Sequence[Tensor],
    root: int,
    *,
    timeout: float,
) -> None:
    """Each of the root's inputs, all of one size, to the output of its rank."""
    rank, size = communicator.rank, communicator.size
    with writable(output) as flat:
        everything = joined(inputs) if rank == root else flat.new_empty(flat.numel() * size)
        communicator.broadcast(everything, root, timeout=timeout)
        flat.copy_(everything.view(size, -1)[rank] if flat.numel() else flat)


def split(name: str, role: str, tensor: Tensor, splits: Sequence[int], size: int) -> list[int]:
    """How many elements of `tensor` belong to each rank: `splits` rows, or equal shares where that is empty."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        if rows % size:
            raise ValueError(f"hetccl: the {role} of {name} has {rows} rows, which {size} ranks cannot share equally")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise ValueError(
            f"hetccl: the {role} split sizes of {name} are {list(splits)}; "
            f"they must be {size} numbers with the sum {rows}, the rows of the {role}"
        )
    elements = sizes([tensor])[0]
    return [share * elements // rows if rows else 0 for share in splits]


def all_to_all(
    communicator: Communicator,
    output: Tensor,
    received: Sequence[int],
    input: Tensor,
    sent: Sequence[int],
    *,
    timeout: float,
) -> None:
    """`sent[i]` elements of the flat `input` go to rank i; `received[i]` come from it to the flat `output`."""
    rank, size = communicator.rank, communicator.size
    counts = torch.empty(size, 2, size, dtype=torch.int64)
    communicator.all_gather(counts.view(-1), torch.tensor([*sent, *received]), timeout=timeout)
    sends, receives = counts[:, 0], counts[:, 1].T
    if not torch.equal(sends, receives):
        source, target = (sends != receives).nonzero()[0].tolist()
        raise ValueError(
            f"hetccl: all_to_all: rank {source} sends {int(sends[source, target])} elements to rank {target}, "
            f"which expects {int(receives[source, target])}"
        )
    totals = sends.sum(dim=1).tolist()
    everything = input.new_empty(sum(totals))
    communicator.all_gather(everything, input, totals, timeout=timeout)
    parts = []
    for source, start in enumerate(accumulate(totals, initial=0)):
        if source < size:
            begin = start + int(sends[source, :rank].sum())
            parts.append(everything[begin : begin + int(sends[source, rank])])
    torch.cat(parts, out=output)


def all_to_all_lists(
    communicator: Communicator,
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    *,
    timeout: float,
) -> None:
    """inputs[i] goes to rank i, outputs[i] comes from it."""
    output = torch.empty(sum(sizes(outputs)), dtype=_element(outputs[0]))
    all_to_all(communicator, output, sizes(outputs), joined(inputs), sizes(inputs), timeout=timeout)
    spread(output, outputs)


def _element(tensor: Tensor) -> torch.dtype:
    """The dtype of its elements as the communicator sees them: a complex number is a pair."""
    return tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
