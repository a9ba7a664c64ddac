"""torch's reduction ops under the communicator's names."""

from typing import Any

from torch._C._distributed_c10d import ReduceOp


def reduction(opts: Any) -> str:
    """The communicator's name of the reduction that `opts` asks for; SUM where they ask for none."""
    op = ReduceOp.SUM if opts is None else opts.reduceOp
    return str(getattr(op, "op", op).name).lower()
