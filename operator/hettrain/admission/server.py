"""The webhook's process: answers the API server over TLS until it is told to stop."""

import asyncio
import json
import logging
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import kopf
from aiohttp import web

from hettrain.admission.review import Reviewer
from hettrain.admission.rotation import Names, Rotation
from hettrain.health import serve_health
from hettrain.kube import Kube
from hettrain.logs import LogFormat, set_up_logs
from hettrain.plan import Context

__all__ = ["PATH", "Settings", "run"]

log = logging.getLogger(__name__)

PATH = "/validate"
LARGEST_REVIEW = 8 << 20
"""Bytes: the old and the new object of a request, each at most what etcd takes."""


@dataclass(frozen=True)
class Settings:
    """What `hettrain webhook` can be told."""

    names: Names
    context: Context
    port: int
    health_port: int = 0
    log_format: LogFormat = "text"


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT (0); 1 without access to a cluster."""
    set_up_logs(settings.log_format)
    try:
        return asyncio.run(_serve(settings))
    except (kopf.LoginError, OSError) as error:
        log.error("the webhook cannot serve: %s", error)
        return 1


def application(reviewer: Reviewer) -> web.Application:
    """What answers."""

    async def validate(request: web.Request) -> web.Response:
        try:
            review: dict[str, Any] = json.loads(await request.read())
            answer = await reviewer.answer(review)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning("a request that is no AdmissionReview", exc_info=True)
            return web.Response(status=400, text="expected an AdmissionReview with a request")
        return web.json_response(answer)

    app = web.Application(client_max_size=LARGEST_REVIEW)
    app.add_routes([web.post(PATH, validate)])
    return app


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Kube())
        rotation = Rotation(kube, settings.names)
        if settings.health_port:
            health = await serve_health(settings.health_port, lambda: "", rotation.ready.is_set)
            stack.push_async_callback(health.cleanup)
        rotating = asyncio.create_task(rotation.run())
        stack.callback(rotating.cancel)
        runner = web.AppRunner(application(Reviewer(kube, settings.context)), access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stopping = asyncio.create_task(stop.wait())
        ready = asyncio.create_task(rotation.ready.wait())
        await asyncio.wait({stopping, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await web.TCPSite(runner, None, settings.port, ssl_context=rotation.context).start()
            log.info("answering on port %d as %s", settings.port, settings.names.host)
            await stopping
        ready.cancel()
    return 0
