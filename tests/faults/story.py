"""A job's life, from its creation over a failed attempt to its end, with the operator's real controller."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hettrain.api.job import KIND
from hettrain.controller import Controller
from hettrain.kube import ApiError, Unreachable
from hettrain.metrics import Metrics
from hettrain.store import Store

from tests.faults.memory_api import Crash, MemoryApi
from tests.unit.hettrain.documents import CONTEXT, document, pool

__all__ = ["Story"]

WATCHED = ("Pod", "Service")
LONGEST = 200


class Story:
    """One job and whoever else has a part in it. The operator is started anew, with nothing in mind, when it dies."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        job = document(
            pool(replicas=2, rdma={"ibHca": "mlx5_0"}),
            pool("amd", vendor="amd"),
            failurePolicy={"maxRestarts": 2, "backoff": {"initialSeconds": 0}},
            disruptionBudget="Gang",
        )
        self.uid: str = api.put(job)["metadata"]["uid"]
        self._start()

    def _start(self) -> None:
        self.store = Store()
        self._woken = False
        self.controller = Controller(self.api, self.store, CONTEXT, self._wake, Metrics())  # type: ignore[arg-type]

    def _wake(self, uid: str) -> None:
        self._woken = True

    def _watch(self) -> None:
        """What the watches tell."""
        for job in self.api.list(KIND):
            self.store.put_job(job)
        for kind in WATCHED:
            there = {found["metadata"]["uid"]: found for found in self.api.list(kind)}
            for found in there.values():
                self.store.put_child(kind, found)
            for uid in self.store.versions(kind).keys() - there.keys():
                self.store.drop_child(uid)

    async def settle(self) -> None:
        """The operator works until it has nothing to do; the queue tries again what fails."""
        for _ in range(LONGEST):
            self._watch()
            before, self._woken = len(self.api.writes), False
            try:
                await self.controller.reconcile(self.uid)
            except (ApiError, Unreachable):
                continue
            except Crash:
                self._start()
                continue
            if len(self.api.writes) == before and not self._woken:
                return
        raise AssertionError(f"never settles: {self.api.writes[-20:]}")

    async def live(self) -> None:
        """The whole story."""
        await self.settle()
        self.run()
        await self.settle()
        for name in self.pods():
            self.end(name, 1)
        await self.settle()
        self.run()
        await self.settle()
        for name in self.pods():
            self.end(name, 0)
        await self.settle()

    # -- the kubelets
    def pods(self) -> dict[str, dict[str, Any]]:
        return {found["metadata"]["name"]: found for found in self.api.list("Pod")}

    def run(self) -> None:
        for found in self.pods().values():
            if found["status"]["phase"] == "Pending":
                found["spec"]["nodeName"] = "node"
                found["status"] = {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{"name": "trainer", "state": {"running": {}}}],
                }
                self.api.put(found)

    def end(self, name: str, code: int) -> None:
        found = self.pods()[name]
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        found["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "trainer", "state": {"terminated": ended}}],
        }
        self.api.put(found)

    # -- what is compared
    def outcome(self) -> dict[str, Any]:
        """What is there at the end, and what the job's status says, but for times."""
        status = self.api.list(KIND)[0]["status"]
        return {
            "objects": sorted(f"{kind} {name}" for kind, name in self.api.objects if kind not in ("Event", KIND)),
            "state": status["state"],
            "attempt": status["attempt"],
            "restarts": status["restarts"],
            "pools": status["pools"],
            "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
            "firstFailure": status["firstFailure"],
        }


def tell(prepare: Callable[[MemoryApi], None] = lambda api: None) -> Story:
    """The story from its beginning to its end, in a world that `prepare` has made worse."""
    api = MemoryApi()
    story = Story(api)
    prepare(api)

    async def live() -> None:
        await story.live()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(live())
    return story
