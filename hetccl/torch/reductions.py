"""torch's reduction ops under the communicator's names."""

from typing import Any

_NAMES: dict[Any, str] = {}


def reduction(opts: Any) -> str:
    """The communicator's name of the reduction that `opts` asks for; SUM where they ask for none."""
    if opts is None:
        return "sum"
    op = opts.reduceOp
    kind = getattr(op, "op", op)
    name = _NAMES.get(kind)
    if name is None:
        name = _NAMES[kind] = str(kind.name).lower()
    return name
