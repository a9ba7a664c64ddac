"""Puts hetccl in the place of "nccl" in every process of a job, without a change to its image.

This folder is on PYTHONPATH. `sitecustomize` calls `watch` when Python starts, and the entry point of the dist-info
beside this file calls `activate` when torch has been imported; either is enough. The rest of hetccl comes from the
folder above, which is appended to sys.path, so that whatever the image has itself wins.

An import of torch never fails because of hetccl. Where hetccl cannot take over it says so on stderr, and "nccl" refuses
to make groups: a job that quietly runs on something else would be worse. Nothing here needs more than the standard
library of Python 3.8, so that an older Python than hetccl's is told so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

SWITCH = "HETCCL_VENDOR"
OLDEST_PYTHON = (3, 10)
DISTRIBUTED = "torch.distributed.distributed_c10d"


class _State:
    prepared = False
    failure: Exception | None = None


def activate() -> None:
    """Take over "nccl": now, or as soon as torch.distributed is imported. Does nothing outside a job of ours."""
    if SWITCH not in os.environ:
        return
    _prepare()
    c10d = sys.modules.get(DISTRIBUTED)
    if c10d is not None:
        _take_over(c10d)
    else:
        watch()


def watch() -> None:
    """Act when torch is imported. Does nothing outside a job of ours."""
    if SWITCH in os.environ and not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def install(c10d: ModuleType, group: type) -> None:
    """Make `group` what torch.distributed takes for ProcessGroupNCCL."""
    for module in (c10d, sys.modules["torch.distributed"]):
        module.ProcessGroupNCCL = group  # type: ignore[attr-defined]
    c10d._NCCL_AVAILABLE = True  # type: ignore[attr-defined]
    if "ProcessGroupNCCL" not in c10d.__all__:
        c10d.__all__.append("ProcessGroupNCCL")
    if c10d.default_pg_nccl_timeout is None:
        c10d.default_pg_nccl_timeout = c10d.default_pg_timeout  # type: ignore[attr-defined]


def serve_cpu_by_default(c10d: ModuleType) -> None:
    """Make init_process_group() without a backend choose "nccl" in a process that sees no GPU."""
    c10d.Backend.default_device_backend_map["cpu"] = c10d.Backend.NCCL


class _Watch:
    """A finder that changes no module: it acts before torch is imported and when torch.distributed is there.

    torch imports torch.distributed as a part of itself. A half imported torch is left alone: what crashes there, takes
    the interpreter with it.
    """

    importing_torch = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in ("torch", DISTRIBUTED):
            return None
        others = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        spec = next((spec for find in others if find and (spec := find(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            execute, execute_and_act = spec.loader.exec_module, self._torch if name == "torch" else self._distributed
            spec.loader.exec_module = lambda module: execute_and_act(execute, module)
        return spec

    def _torch(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        _prepare()
        self.importing_torch = True
        try:
            execute(module)
        finally:
            self.importing_torch = False
        if DISTRIBUTED in sys.modules:
            _take_over(sys.modules[DISTRIBUTED])

    def _distributed(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        if not self.importing_torch:
            _take_over(module)


def _prepare() -> None:
    if _State.prepared:
        return
    _State.prepared = True
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise RuntimeError(f"Python is {sys.version.split()[0]}; hetccl needs {'.'.join(map(str, OLDEST_PYTHON))}")
        home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 -- runs in every Python
        if home not in sys.path:
            sys.path.append(home)
        from hetccl.inject import takeover  # noqa: PLC0415 -- the line above makes it importable

        takeover.prepare()
    except Exception as error:
        _fail(error)


def _take_over(c10d: ModuleType) -> None:
    if getattr(c10d, "_hetccl", False):
        return
    c10d._hetccl = True  # type: ignore[attr-defined]
    if _State.failure is None:
        try:
            from hetccl.inject import takeover  # noqa: PLC0415 -- _prepare made it importable

            takeover.take_over(c10d)
        except Exception as error:
            _fail(error)
    if _State.failure is not None:
        install(c10d, _refusing(_State.failure))
        serve_cpu_by_default(c10d)


def _fail(error: Exception) -> None:
    _State.failure = error
    print(f'hetccl: cannot take over "nccl", which will refuse to work: {_text(error)}', file=sys.stderr, flush=True)


def _refusing(error: Exception) -> type:
    """Stands for ProcessGroupNCCL and makes no group."""

    class ProcessGroupNCCL:
        Options = SimpleNamespace

        def __init__(self, *_arguments: Any, **_options: Any) -> None:
            raise RuntimeError(f'hetccl could not take over "nccl" in this process: {_text(error)}') from error

    return ProcessGroupNCCL


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")
