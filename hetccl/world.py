"""A communicator of all ranks of a job, as a launcher describes it in the environment."""

from datetime import timedelta

from hetccl import settings
from hetccl.communicator import Communicator
from hetccl.observe import trace
from hetccl.observe.log import configure

__all__ = ["connect"]


def connect(*, timeout: float = 600.0) -> Communicator:
    """The communicator of all ranks that the launcher started; every one of them calls this once.

    torchrun, `hettrain run --local` and the operator set what is needed: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
    Outside of a job of hetccl's all ranks are of the vendor "cpu". `timeout` (seconds) is for joining, and for each
    call that names none. Raises SettingsError or HetcclError.
    """
    # Not at import: that may be while torch is half imported.
    from torch.distributed.distributed_c10d import PrefixStore  # noqa: PLC0415
    from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415

    chosen = settings.of_process()
    store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
    configure(chosen.log_level, rank)
    trace.configure(chosen.trace, rank)
    return Communicator(
        PrefixStore("hetccl/connect", store), rank, size, chosen.identity(), name="world", timeout=timeout
    )
