"""What stands where torch.distributed looks for ProcessGroupNCCL.

Calling it makes the group that fits its ranks: the vendor's own where all of them are GPUs of one vendor, ours else.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from logging import Logger
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._C import _DistBackendError as DistBackendError
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, Store

import hetccl
from hetccl.balance.balancer import Balancer
from hetccl.balance.install import install, uninstall
from hetccl.communicator import Communicator
from hetccl.errors import HetcclError
from hetccl.observe import trace
from hetccl.observe.log import configure
from hetccl.observe.ranks import Member, has_gpu, rank_map, report, spans
from hetccl.observe.report import ReportServer
from hetccl.settings import Settings
from hetccl.torch.process_group import HetProcessGroup

_DEFAULT_TIMEOUT = timedelta(minutes=10)


class GroupOptions:
    """ProcessGroupNCCL.Options where torch has none: what torch.distributed and programs set on it."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = _DEFAULT_TIMEOUT
        self.global_ranks_in_group: Sequence[int] = []
        self.group_name = ""
        self.split_from: ProcessGroup | None = None
        self.split_color = 0
        self.config = SimpleNamespace()


def front(settings: Settings, vendors: type | None) -> type:
    """The class for a process with these settings. `vendors` is torch's own ProcessGroupNCCL, where it has one."""
    kinds = (HetProcessGroup, vendors) if vendors else (HetProcessGroup,)

    class Front(type):
        def __call__(
            cls, store: Store, rank: int, size: int, options: Any = None, *, timeout: timedelta = _DEFAULT_TIMEOUT
        ) -> Any:
            if options is None:
                options = cls.Options()  # type: ignore[attr-defined]
                options._timeout = timeout
            return make_group(store, rank, size, options, settings=settings, vendors=vendors)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, kinds)

    return Front("ProcessGroupNCCL", (), {"Options": getattr(vendors, "Options", GroupOptions)})


def make_group(
    store: Store, rank: int, size: int, options: Any, *, settings: Settings, vendors: Callable[..., Any] | None
) -> Any:
    """A group of `size` ranks, of which this process is `rank`. Raises on every rank where they do not fit together."""
    if settings.needs_device and not torch.cuda.is_available():
        raise RuntimeError(
            f"hetccl: rank {rank} is of vendor {settings.vendor}, but torch {torch.__version__} finds no GPU. Check "
            "the pod's GPU request and that torch is built for this vendor, or set HETCCL_SIMULATE=1 "
            "(spec.hetccl.simulate) on every rank to run on CPUs in the GPUs' place"
        )
    world = not options.global_ranks_in_group
    ranks: Sequence[int] = range(size) if world else options.global_ranks_in_group
    logger = configure(settings.log_level, ranks[rank])
    if world:
        trace.configure(settings.trace, rank)
    try:
        communicator = Communicator(
            PrefixStore("hetccl", store),
            rank,
            size,
            settings.identity(),
            name="world" if world else options.group_name,
            timeout=options._timeout.total_seconds(),
            ranks=ranks,
        )
    except HetcclError as error:
        raise DistBackendError(f"hetccl: {error}") from error
    members: Sequence[Member] = communicator.topology.ranks
    try:
        own = one_vendors_gpus(members)
        if own and vendors is None:
            raise RuntimeError(f"hetccl: all ranks are {members[0].vendor} GPUs, but this torch has no NCCL of its own")
    except RuntimeError as error:
        communicator.abort(str(error))
        raise
    if rank == 0:
        _announce(logger, settings, members, ranks, "the vendor's own" if own else communicator.wires, world=world)
    balancer = install(settings, store, rank, size, options._timeout.total_seconds()) if world else None
    server = _serve_report(logger, settings, members, balancer) if world and rank == 0 else None
    if own and vendors is not None:
        communicator.close()
        return vendors(store, rank, size, options)
    group = HetProcessGroup(communicator, store, rank, size, options._timeout)
    if balancer is not None:
        group.on_close.append(uninstall)
    if server is not None:
        group.on_close.append(server.close)
    return group


def one_vendors_gpus(members: Sequence[Member]) -> bool:
    """True where the vendor's library can serve the group alone: all ranks are GPUs of one vendor.

    Raises RuntimeError where GPUs and anything else would have to work together, which needs what hetccl lacks yet.
    """
    devices = [rank for rank, member in enumerate(members) if has_gpu(member)]
    if not devices:
        return False
    if len(devices) == len(members) and len({member.vendor for member in members}) == 1:
        return True
    raise RuntimeError(
        "hetccl: this version carries data between vendors for CPU tensors only, and "
        f"{spans(devices)} of the group would work on GPUs ({'; '.join(rank_map(members))}). "
        "Set HETCCL_SIMULATE=1 (spec.hetccl.simulate) on every rank to run all of them on CPUs"
    )


def _announce(
    logger: Logger, settings: Settings, members: Sequence[Member], ranks: Sequence[int], wires: str, *, world: bool
) -> None:
    if not world:
        logger.info("group of %s of the world; between its ranks: %s", spans(ranks), wires)
        return
    logger.info("hetccl %s, %s; job %s", hetccl.__version__, _origin(settings.home), settings.job or "without a name")
    logger.info("world of %d, between its ranks: %s", len(members), wires)
    for line in rank_map(members):
        logger.info("  %s", line)


def _origin(home: Path | None) -> str:
    """Which hetccl this is: the image's own wins over one that was injected."""
    package = Path(hetccl.__file__).parent
    if home is None:
        return f"installed at {package}"
    if package == home / "hetccl":
        return f"injected from {home}"
    return f"the image's own at {package}, not the one at {home}"


def _serve_report(
    logger: Logger, settings: Settings, members: Sequence[Member], balancer: Balancer | None
) -> ReportServer | None:
    if settings.report_port is None:
        return None
    if not settings.token:
        logger.warning(
            "HETCCL_REPORT_PORT is set without HETCCL_TOKEN_FILE: no report is served, anybody could read it"
        )
        return None
    document = report(settings.job, members)

    def answer() -> Mapping[str, Any]:
        return document if balancer is None else {**document, "shares": balancer.fractions()}

    try:
        return ReportServer(settings.report_port, settings.token, answer)
    except OSError as error:
        logger.warning(
            "no report is served on port %d (HETCCL_REPORT_PORT): %s; training goes on", settings.report_port, error
        )
        return None
