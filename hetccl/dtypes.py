"""Element types: torch's names, the C core's numbers."""

from enum import Enum, IntEnum

import torch

__all__ = ["DTYPES", "Op", "Reduction", "check_reduction", "code_of"]

# The order is the C core's (core/reduce.h). bool is summed as MAX of uint8, as NCCL does.
_NAMES = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)
DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in _NAMES)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)} | {torch.bool: DTYPES.index(torch.uint8)}


class Reduction(IntEnum):
    """What a step does with its sources; the numbers are the C core's."""

    SUM, PROD, MIN, MAX, BAND, BOR, BXOR = range(7)


class Op(str, Enum):
    """What a caller may ask for."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"

    __hash__ = str.__hash__  # Enum's own is a function in Python, and every call looks its op up

    @property
    def reduction(self) -> Reduction:
        """The reduction underneath; AVG is a SUM that its owner divides once."""
        return _REDUCTIONS[self]


_REDUCTIONS = {
    Op.SUM: Reduction.SUM,
    Op.PRODUCT: Reduction.PROD,
    Op.MIN: Reduction.MIN,
    Op.MAX: Reduction.MAX,
    Op.AVG: Reduction.SUM,
    Op.BAND: Reduction.BAND,
    Op.BOR: Reduction.BOR,
    Op.BXOR: Reduction.BXOR,
}
_BITWISE = (Op.BAND, Op.BOR, Op.BXOR)


def code_of(dtype: torch.dtype) -> int:
    """The C core's number of a dtype. Raises TypeError where elements of it cannot be carried."""
    try:
        return _CODES[dtype]
    except KeyError:
        raise TypeError(f"hetccl carries no elements of {dtype}; it carries {', '.join(_NAMES)} and bool") from None


def check_reduction(op: Op, dtype: torch.dtype) -> Op:
    """The op that reduces elements of this dtype. Raises TypeError where there is none."""
    if dtype is torch.bool:
        if op is Op.AVG:
            raise TypeError(
                "the average of bool is not a bool: reduce a float tensor, or ask for SUM (any) or MIN (all)"
            )
        return {Op.SUM: Op.MAX, Op.PRODUCT: Op.MIN}.get(op, op)
    if op in _BITWISE and dtype.is_floating_point:
        raise TypeError(f"{op.name} works on bits of integers, the tensor holds {dtype}")
    return op
