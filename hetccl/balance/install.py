"""Load balance as the environment asks for it, from the time when the world has come together."""

import logging
from collections.abc import Callable

from torch._C._distributed_c10d import PrefixStore, Store

from hetccl.balance.balancer import Balancer
from hetccl.balance.ddp import weigh_gradients
from hetccl.balance.loaders import share_loaders
from hetccl.communicator import Communicator
from hetccl.settings import Settings

__all__ = ["active", "install"]

_logger = logging.getLogger("hetccl")
_active: Balancer | None = None
_restore: list[Callable[[], None]] = []


def active() -> Balancer | None:
    """The balancer of this process, where there is one."""
    return _active


def install(settings: Settings, store: Store, rank: int, size: int, timeout: float) -> Balancer | None:
    """Balance this process' loops if its job says so; all ranks of the world call it at once, again for a new world."""
    global _active  # noqa: PLW0603 -- one world a process
    uninstall()
    if settings.balance == "Off" or size == 1:
        return None
    communicator = Communicator(
        PrefixStore("hetccl/balance", store), rank, size, settings.identity(), name="balance", timeout=timeout
    )
    _active = Balancer(
        communicator,
        weight=settings.weight,
        adapt=settings.balance == "Auto",
        normalised=settings.balance_loss == "Sum",
    )
    training, unweigh = weigh_gradients(_active)
    _restore.extend((unweigh, share_loaders(_active, training)))
    if rank == 0:
        _logger.info("load balance: %s", settings.balance)
    return _active


def uninstall() -> None:
    """Take everything back; nothing where nothing is in place."""
    global _active  # noqa: PLW0603
    while _restore:
        _restore.pop()()
    if _active is not None:
        _active.close()
        _active = None
