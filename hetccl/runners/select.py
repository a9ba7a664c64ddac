"""Which runner this process uses."""

import functools

from hetccl.runners.base import Runner
from hetccl.runners.core import CoreRunner, library
from hetccl.runners.python import PythonRunner

__all__ = ["runner"]


@functools.cache
def runner(kind: str = "") -> Runner:
    """The runner: "core" or "python", or where that is empty the C core if there is one."""
    core = library() if kind != "python" else None
    if core is None and kind == "core":
        raise RuntimeError("the C core is not there: hetccl was installed without a C compiler")
    return CoreRunner(core) if core is not None else PythonRunner()
