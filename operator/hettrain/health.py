"""GET /healthz: restart me if this fails. GET /readyz: I serve, or stand by to. GET /metrics: for Prometheus."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

__all__ = ["serve_health"]


async def serve_health(
    port: int, trouble: Callable[[], str], ready: Callable[[], bool], metrics: Callable[[], bytes] | None = None
) -> web.AppRunner:
    """Answer on a port. `trouble` says what is wrong, or nothing; `metrics` gives Prometheus' text."""

    async def healthz(_: web.Request) -> web.Response:
        wrong = trouble()
        return web.Response(status=500 if wrong else 200, text=wrong or "ok")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if ready() else 503, text="ok" if ready() else "starting")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    if metrics is not None:

        async def scrape(_: web.Request) -> web.Response:
            return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

        app.add_routes([web.get("/metrics", scrape)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner
