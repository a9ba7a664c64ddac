"""The C core: its reductions against torch."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from hetccl.dtypes import DTYPES, Reduction
from hetccl.runners import core, python
from hetccl.runners.core import library

FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point]
INTEGERS = [dtype for dtype in DTYPES if not dtype.is_floating_point]
built = pytest.mark.skipif(library() is None, reason="the C core was not built: no C compiler")


def bits(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Every pattern may come: NaN, infinities, subnormals."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype)


def reduce(sources: list[torch.Tensor], reduction: Reduction, divisor: int) -> torch.Tensor:
    c, dtype = library(), sources[0].dtype
    assert c is not None
    c.het_reduce.argtypes = [ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int, *[ctypes.c_int64] * 2]
    result = torch.empty_like(sources[0])
    pointers = (ctypes.c_void_p * len(sources))(*(source.data_ptr() for source in sources))
    code = DTYPES.index(dtype)
    arguments = result.data_ptr(), pointers, len(sources), result.numel(), divisor
    assert c.het_reduce(code, reduction, *arguments) == 0
    return result


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal, where any NaN is as good as any other."""
    if not left.dtype.is_floating_point:
        return torch.equal(left, right)
    wide = torch.float64 if left.dtype is torch.float64 else torch.float32
    left, right = left.to(wide), right.to(wide)
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def nans(tensor: torch.Tensor) -> set[int]:
    """The bit patterns of its NaNs."""
    raw = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    return set(tensor.view(raw)[tensor.to(torch.float64).isnan()].tolist())


@built
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", [Reduction.SUM, Reduction.PROD, Reduction.MIN, Reduction.MAX])
def test_floats_are_reduced_as_the_reference_does(dtype: torch.dtype, reduction: Reduction) -> None:
    for count in (1, 2, 3, 5):
        sources = [bits(5003, dtype, seed) for seed in range(count)]
        for divisor in (1, 3):
            expected = python.reduce(sources, reduction, divisor)
            found = reduce(sources, reduction, divisor)
            assert same(found, expected), (count, divisor)
            if count > 1 or divisor > 1:  # else it is moved as it is
                assert nans(found) == nans(expected) <= {python.NAN[dtype]}, (count, divisor)


@built
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("reduction", list(Reduction))
def test_integers_wrap_and_divide_towards_zero(dtype: torch.dtype, reduction: Reduction) -> None:
    """Against Python's own whole numbers, which never overflow."""
    apply = {
        Reduction.SUM: lambda x, y: x + y,
        Reduction.PROD: lambda x, y: x * y,
        Reduction.MIN: min,
        Reduction.MAX: max,
        Reduction.BAND: lambda x, y: x & y,
        Reduction.BOR: lambda x, y: x | y,
        Reduction.BXOR: lambda x, y: x ^ y,
    }[reduction]
    width, signed = 8 * dtype.itemsize, torch.iinfo(dtype).min < 0

    def wrap(value: int) -> int:
        value &= (1 << width) - 1
        return value - (1 << width) if signed and value >> (width - 1) else value

    for count in (1, 2, 3):
        sources = [bits(300, dtype, seed) for seed in range(count)]
        for divisor in (1, 3):
            expected = []
            for values in zip(*(source.tolist() for source in sources), strict=True):
                result = values[0]
                for value in values[1:]:
                    result = wrap(apply(result, value))
                whole = abs(result) // divisor
                expected.append(-whole if result < 0 else whole)
            assert reduce(sources, reduction, divisor).tolist() == expected, (count, divisor)


@built
@pytest.mark.parametrize(
    "dtype", [dtype for dtype in DTYPES if dtype.itemsize == 1 and dtype.is_floating_point], ids=str
)
def test_sums_of_every_pair_of_eight_bit_floats_are_those_of_torch(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    left, right = every.repeat_interleave(256).view(dtype), every.repeat(256).view(dtype)
    assert same(reduce([left, right], Reduction.SUM, 1), (left.float() + right.float()).to(dtype))


@built
def test_bits_of_floats_are_not_reduced() -> None:
    with pytest.raises(AssertionError):
        reduce([torch.ones(3), torch.ones(3)], Reduction.BAND, 1)


def test_a_library_of_another_interface_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, old = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text("int het_interface(void) { return 2; }")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", old, source], check=True)
    monkeypatch.setattr(core, "FILE", old)
    assert core.library.__wrapped__() is None
