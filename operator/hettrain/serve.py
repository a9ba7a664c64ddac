"""The operator's process: stand by for the Lease, then watch and reconcile until told to stop."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import kopf

from hettrain.audit import Audit
from hettrain.controller import Controller
from hettrain.handlers import make_registry, make_settings
from hettrain.health import serve_health
from hettrain.inject import PullPolicy
from hettrain.kube import ApiError, Kube, Unreachable
from hettrain.lease import Lease, LeaseLost
from hettrain.logs import LogFormat, set_up_logs
from hettrain.metrics import Metrics
from hettrain.plan import Context
from hettrain.probe import best_delivery
from hettrain.queue import Queue
from hettrain.store import Store

__all__ = ["Settings", "run"]

log = logging.getLogger(__name__)

CRD_POLL_SECONDS = 2.0
DRAIN_SECONDS = 8.0
"""How long a reconcile that runs may go on after SIGTERM."""


@dataclass(frozen=True)
class Settings:
    """What `hettrain operator` can be told. No `namespaces`: all of them, and profiles. `health_port` 0: none.

    `identity` must be this process's alone.
    """

    hetccl_image: str
    hetccl_pull_policy: PullPolicy = "IfNotPresent"
    hetccl_delivery: Literal["Auto", "ImageVolume", "InitContainer"] = "Auto"
    namespaces: tuple[str, ...] = ()
    lease_name: str = "hettrain"
    lease_namespace: str = "default"
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}-{secrets.token_hex(4)}")
    health_port: int = 0
    report_poll_seconds: float = 5.0
    log_format: LogFormat = "text"


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT (0), or until the Lease is lost or something breaks (1)."""
    set_up_logs(settings.log_format)
    try:
        return asyncio.run(_Process(settings).run())
    except (kopf.LoginError, OSError) as error:
        log.error("no access to a cluster: %s", error)
        return 1


class _Process:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._reached = False
        self._audit: Audit | None = None
        self._metrics = Metrics()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        settings = self._settings
        async with AsyncExitStack() as stack:
            if settings.health_port:
                health = await serve_health(
                    settings.health_port, self._trouble, lambda: self._reached, self._metrics.text
                )
                stack.push_async_callback(health.cleanup)
            kube = await stack.enter_async_context(Kube(self._metrics.request))
            # The Lease's requests must not queue behind those of a gang of a thousand pods.
            own = await stack.enter_async_context(Kube(self._metrics.request))
            lease = Lease(own, settings.lease_namespace, settings.lease_name, settings.identity)
            if not await self._until_stopped(self._stand_by(kube, lease)):
                return 0
            # A write after this Lease is lost could meet its next holder's: nothing may run on, not even to clean up.
            holding = asyncio.create_task(lease.hold())
            holding.add_done_callback(_leave)
            code = await self._serve(kube)
            holding.remove_done_callback(_leave)
            holding.cancel()
            await lease.release()
            return code

    def _trouble(self) -> str:
        return self._audit.dead if self._audit is not None else ""

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether the work was done before somebody said stop."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            return False
        stop.cancel()
        await task
        return True

    async def _stand_by(self, kube: Kube, lease: Lease) -> None:
        while True:
            try:
                if await kube.serves_jobs():
                    break
                log.warning("the CRDs are not installed: waiting for them")
            except (ApiError, Unreachable) as error:
                log.warning("%s", error)
            await asyncio.sleep(CRD_POLL_SECONDS)
        self._reached = True
        await lease.acquire()

    async def _serve(self, kube: Kube) -> int:
        settings = self._settings
        asked = settings.hetccl_delivery
        namespace = (*settings.namespaces, settings.lease_namespace)[0]
        delivery = await best_delivery(kube, namespace) if asked == "Auto" else asked
        log.info("hetccl comes from %s by %s where jobs do not say otherwise", settings.hetccl_image, delivery)
        context = Context(
            delivery=delivery,
            image=settings.hetccl_image,
            pull_policy=settings.hetccl_pull_policy,
            report_poll_seconds=settings.report_poll_seconds,
        )
        store = Store()
        queue = Queue()
        metrics = self._metrics
        metrics.leader.set(1)
        metrics.jobs = store.jobs.values
        metrics.depth.set_function(lambda: queue.depth)
        controller = Controller(kube, store, context, queue.add, metrics)
        self._audit = Audit(kube, store, settings.namespaces or (None,), queue.add)
        # kopf cancels whatever was started after it when it ends, so these come first.
        queue.start(controller.reconcile)
        auditing = asyncio.create_task(self._audit.run())
        try:
            # kopf ends by SIGTERM and SIGINT itself, once it has put its handlers in place of ours.
            await self._until_stopped(
                kopf.operator(
                    registry=make_registry(store, queue.add, profiles=not settings.namespaces),
                    settings=make_settings(),
                    clusterwide=not settings.namespaces,
                    namespaces=settings.namespaces,
                    standalone=True,
                )
            )
            return 0
        except Exception:
            log.exception("the watches broke")
            return 1
        finally:
            auditing.cancel()
            await queue.stop(DRAIN_SECONDS)


def _leave(holding: "asyncio.Task[None]") -> None:
    error = holding.exception() if not holding.cancelled() else None
    if error is not None:
        log.error("%s: leaving", error if isinstance(error, LeaseLost) else repr(error))
        logging.shutdown()
        os._exit(1)
