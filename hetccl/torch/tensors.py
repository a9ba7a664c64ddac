"""Tensors as the communicator takes them: dense, on the CPU, flat."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def check(name: str, tensors: Sequence[Tensor]) -> None:
    """Raise where one of the tensors cannot be carried."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise ValueError(
                f"hetccl: {name} got a tensor on {tensor.device}; a group of several vendors carries CPU tensors only"
            )
        if tensor.layout != torch.strided:
            raise ValueError(f"hetccl: {name} got a tensor of layout {tensor.layout}; it must be dense")


def one(name: str, tensors: Sequence[Tensor]) -> Tensor:
    """The tensor of an operation that takes a list of one."""
    if len(tensors) != 1:
        raise ValueError(f"hetccl: {name} takes a list of one tensor, this one holds {len(tensors)}")
    check(name, tensors)
    return tensors[0]


def readable(tensor: Tensor) -> Tensor:
    """Its elements as a flat contiguous tensor, without a copy where it is contiguous; complex numbers as pairs."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.contiguous().view(-1)


def is_flat(tensor: Tensor) -> bool:
    """Whether `readable` gives the tensor's own memory."""
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def element(tensor: Tensor) -> torch.dtype:
    """The dtype of its elements as `readable` gives them."""
    return tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype


@contextmanager
def writable(tensor: Tensor) -> Iterator[Tensor]:
    """As `readable`; what is written to it is in `tensor` at the end of the block."""
    flat = readable(tensor)
    yield flat
    if flat.data_ptr() != tensor.data_ptr():
        target = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        target.copy_(flat.view(target.shape))


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Their elements, one tensor's after the other's, in a new flat tensor."""
    return torch.cat([readable(tensor) for tensor in tensors])


def sizes(tensors: Sequence[Tensor]) -> list[int]:
    """How many elements each of them has in `joined`."""
    return [tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in tensors]


def spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """The reverse of `joined`: write the elements of `flat` to the tensors."""
    for part, tensor in zip(flat.split_with_sizes(sizes(tensors)), tensors, strict=True):
        with writable(tensor) as target:
            target.copy_(part)
