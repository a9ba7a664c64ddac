"""DistributedDataParallel whose gradients count by the samples that they come from."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hetccl.balance.balancer import Balancer

__all__ = ["weigh_gradients"]

_MARK = "_hetccl_weighed"


def weigh_gradients(balancer: Balancer) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Weigh the gradients of all modules that DDP wraps from now on.

    The gradient of each parameter is multiplied before DDP sees it. That is right for any loss, also for its parts that
    are made of parameters alone: the factors of all ranks have the mean 1. Returns two functions: whether such a module
    is in training, and one that takes it back.
    """
    wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
    own: Any = DistributedDataParallel.__init__

    def weigh(gradient: torch.Tensor) -> torch.Tensor | None:
        balancer.backward()
        return None if balancer.factor == 1.0 else gradient * balancer.factor

    def init(module: Any, *args: Any, **kwargs: Any) -> None:
        own(module, *args, **kwargs)
        if module.process_group.size() != balancer.ranks:
            return
        wrapped.add(module)
        balancer.weighs = True
        for parameter in module.parameters():
            # Wrapped twice it is weighed once.
            if parameter.requires_grad and not hasattr(parameter, _MARK):
                setattr(parameter, _MARK, parameter.register_hook(weigh))
                balancer.watch(parameter.device)

    def restore() -> None:
        DistributedDataParallel.__init__ = own  # type: ignore[method-assign]

    DistributedDataParallel.__init__ = init  # type: ignore[assignment, method-assign]
    return lambda: any(module.training for module in wrapped), restore
