"""Arrays of any library as flat tensors that share their memory."""

from typing import Any, Protocol, TypeAlias

import torch
from torch.utils.dlpack import from_dlpack

__all__ = ["Array", "flat"]


class SupportsDLPack(Protocol):
    """An array of another library, such as numpy's."""

    def __dlpack__(self, *_arguments: Any, **_options: Any) -> Any: ...


class SupportsBuffer(Protocol):
    """bytearray, array.array, mmap, memoryview, ..."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


Array: TypeAlias = torch.Tensor | SupportsDLPack | SupportsBuffer
"""A tensor, anything with `__dlpack__`, or anything with a buffer that can be written."""

_FORMATS = {
    "b": torch.int8,
    "B": torch.uint8,
    "h": torch.int16,
    "H": torch.uint16,
    "i": torch.int32,
    "I": torch.uint32,
    "l": torch.int64,
    "L": torch.uint64,
    "q": torch.int64,
    "Q": torch.uint64,
    "e": torch.float16,
    "f": torch.float32,
    "d": torch.float64,
    "?": torch.bool,
    "c": torch.uint8,
}


def flat(array: Array) -> torch.Tensor:
    """The elements of an array, as a tensor over the same memory.

    Raises TypeError where it is no array that can be shared, or of elements that hetccl does not carry, ValueError
    where it is not contiguous or cannot be written.
    """
    if isinstance(array, torch.Tensor):
        return array
    if hasattr(array, "__dlpack__"):
        try:
            return from_dlpack(array)
        except (BufferError, RuntimeError) as error:
            raise ValueError(f"a {type(array).__name__} cannot be shared: {error}") from None
    try:
        view = memoryview(array)
    except TypeError:
        raise TypeError(
            f"hetccl takes tensors, arrays with __dlpack__ and writable buffers, not a {type(array).__name__}"
        ) from None
    if view.readonly:
        raise ValueError(f"a {type(array).__name__} that cannot be written, copy it to a bytearray first")
    if not view.c_contiguous:
        raise ValueError(f"a {type(array).__name__} that is not contiguous, copy it first")
    dtype = _FORMATS.get(view.format.removeprefix("@"))
    if dtype is None or view.itemsize != dtype.itemsize:
        raise TypeError(f"hetccl carries no elements of the format {view.format!r}")
    return torch.frombuffer(view, dtype=dtype) if view.nbytes else torch.empty(0, dtype=dtype)
