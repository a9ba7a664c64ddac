"""Collectives over lists of tensors: they are joined to one flat tensor, and spread out from one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hetccl.communicator import Communicator
from hetccl.torch.tensors import element, joined, readable, sizes, spread, writable


def all_gather(communicator: Communicator, outputs: Sequence[Tensor], input: Tensor, *, timeout: float) -> None:
    """Each rank's input to the output of its rank; the sizes may differ."""
    gathered = torch.empty(sum(sizes(outputs)), dtype=element(input))
    communicator.all_gather(gathered, readable(input), sizes(outputs), timeout=timeout)
    spread(gathered, outputs)


def reduce_scatter(
    communicator: Communicator, output: Tensor, inputs: Sequence[Tensor], op: str, *, timeout: float
) -> None:
    """The reduction of all ranks' inputs for a rank to its output; the sizes may differ."""
    with writable(output) as flat:
        communicator.reduce_scatter(flat, joined(inputs), op, sizes(inputs), timeout=timeout)


def gather(communicator: Communicator, outputs: Sequence[Tensor], input: Tensor, root: int, *, timeout: float) -> None:
    """Every rank's input, all of one size, to the outputs of the root; the others have none."""
    gathered = torch.empty(sum(sizes(outputs)), dtype=element(input)) if outputs else None
    communicator.gather(gathered, readable(input), root, timeout=timeout)
    if gathered is not None:
        spread(gathered, outputs)


def scatter(communicator: Communicator, output: Tensor, inputs: Sequence[Tensor], root: int, *, timeout: float) -> None:
    """Each of the root's inputs, all of one size, to the output of its rank; the others have no inputs."""
    with writable(output) as flat:
        communicator.scatter(flat, joined(inputs) if inputs else None, root, timeout=timeout)


def all_to_all(
    communicator: Communicator, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, timeout: float
) -> None:
    """inputs[i] goes to rank i, outputs[i] comes from it; the sizes may differ."""
    output = torch.empty(sum(sizes(outputs)), dtype=element(outputs[0]))
    communicator.all_to_all(output, joined(inputs), sizes(outputs), sizes(inputs), timeout=timeout)
    spread(output, outputs)


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
