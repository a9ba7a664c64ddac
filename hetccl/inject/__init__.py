"""How hetccl gets into a process: by its own entry point where it is installed, by the bootstrap folder elsewhere."""

import sys


def activate() -> None:
    """Take over "nccl" in this process, if it belongs to a job of ours.

    `import torch` calls this (entry point `torch.backends`). It never raises, and may be called any number of times.
    """
    from hetccl.inject.bootstrap import hetccl_bootstrap  # noqa: PLC0415 -- most imports of hetccl.inject do not need it

    # An injected bootstrap may be at work already, under its own name: one of them keeps the state.
    sys.modules.setdefault("hetccl_bootstrap", hetccl_bootstrap).activate()
