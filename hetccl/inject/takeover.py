"""What the bootstrap does once it has found hetccl."""

import platform
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import hetccl
from hetccl import settings
from hetccl.inject.bootstrap.hetccl_bootstrap import install, serve_cpu_by_default

OLDEST_TORCH = (2, 6)
NCCL_LEVEL = (2, 10, 0)
"""The NCCL that we are the equal of, for those who ask a torch without NCCL: the first one with bfloat16."""


def prepare() -> None:
    """Before torch is imported: check the settings, and hide the GPUs where the job simulates them."""
    if settings.from_environment().simulate:
        settings.hide_gpus()


def take_over(c10d: ModuleType) -> None:
    """Put our process group in the place of ProcessGroupNCCL in `c10d`, which is torch.distributed.distributed_c10d."""
    import torch  # noqa: PLC0415 -- somebody else has begun to import it

    version = torch.version.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TORCH:
        raise RuntimeError(f"torch is {version}; hetccl needs {'.'.join(map(str, OLDEST_TORCH))} or newer")
    chosen = settings.from_environment()
    home = chosen.home or Path(hetccl.__file__).parent.parent
    wheels = home / "site" / wheels_folder(torch.version.cuda, torch.version.hip)
    if wheels.is_dir() and str(wheels) not in sys.path:
        sys.path.append(str(wheels))

    from hetccl.torch.nccl import front  # noqa: PLC0415 -- needs torch

    _answer_for_nccl(torch._C)
    install(c10d, front(chosen, getattr(c10d, "ProcessGroupNCCL", None)))
    if not chosen.needs_device:
        serve_cpu_by_default(c10d)


def _answer_for_nccl(torch_c: Any) -> None:
    """Let torch.cuda.nccl.version() answer: torch asks it about every failure of a group called "nccl"."""
    if not hasattr(torch_c, "_nccl_version"):
        major, minor, patch = NCCL_LEVEL
        torch_c._nccl_version = lambda: major << 32 | minor << 16 | patch
        torch_c._nccl_version_suffix = lambda: b""


def wheels_folder(cuda: str | None, hip: str | None) -> str:
    """The folder of site/ for this Python, the GPU stack that torch was built for and this processor.

    For instance cp312-cuda13-x86_64, cp312-rocm7-aarch64, cp312-cpu-x86_64.
    """
    stacks = {"cuda": cuda, "rocm": hip}
    stack = next((name + version.split(".")[0] for name, version in stacks.items() if version), "cpu")
    return f"cp{sys.version_info.major}{sys.version_info.minor}-{stack}-{platform.machine()}"
