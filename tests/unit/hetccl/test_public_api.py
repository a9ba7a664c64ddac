"""What `import hetccl` offers, and what it costs."""

import subprocess
import sys
from array import array
from typing import Any

import numpy as np
import pytest
import torch

import hetccl
from hetccl.arrays import flat


def test_every_public_name_is_there() -> None:
    for name in hetccl.__all__:
        assert getattr(hetccl, name) is not None
        assert name in dir(hetccl)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hetccl.nothing


def test_importing_it_imports_no_torch_before_a_name_needs_it() -> None:
    code = "import sys, hetccl; assert 'torch' not in sys.modules; hetccl.Communicator; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (array("d", [1, 2, 3]), torch.float64),
        (array("f", [1, 2, 3]), torch.float32),
        (array("i", [1, 2, 3]), torch.int32),
        (array("Q", [1, 2, 3]), torch.uint64),
        (bytearray(b"\1\2\3"), torch.uint8),
        (memoryview(array("h", [1, 2, 3])), torch.int16),
        (np.array([1, 2, 3], dtype=np.float32), torch.float32),
        (np.array([1, 2, 3], dtype=np.int64), torch.int64),
        (torch.tensor([1, 2, 3]), torch.int64),
    ],
)
def test_an_array_of_any_library_is_taken_without_a_copy(value: Any, dtype: torch.dtype) -> None:
    tensor = flat(value)
    assert tensor.dtype is dtype
    assert tensor.tolist() == [1, 2, 3]
    tensor[0] = 7
    assert value[0] == 7


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (b"abc", ValueError, "a bytes that cannot be written"),
        ([1.0, 2.0], TypeError, "not a list"),
        (memoryview(bytearray(8))[::2], ValueError, "not contiguous"),
        (array("w" if sys.version_info >= (3, 13) else "u", "abc"), TypeError, "no elements of the format"),
    ],
)
def test_what_cannot_be_shared_is_refused(value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        flat(value)


def test_an_empty_buffer_is_an_empty_tensor() -> None:
    assert flat(bytearray()).numel() == 0
