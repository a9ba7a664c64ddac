"""One job reconciled against the API server: look, decide, write the status, act, tell."""

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from hettrain.actions import AskQueue, AskReport, Refusal
from hettrain.api import HetTrainingJob, InvalidDocument, JobStatus, load
from hettrain.api.job import API_VERSION, KIND
from hettrain.apply import Question, apply
from hettrain.events import Event, Reason
from hettrain.kube import FIELD_MANAGER, ApiError, Kube, Unreachable
from hettrain.logs import about
from hettrain.metrics import Metrics
from hettrain.plan import Context
from hettrain.reconcile import Children, reconcile
from hettrain.report import ask_report
from hettrain.status.times import write_time
from hettrain.store import Store

__all__ = ["Controller"]

log = logging.getLogger(__name__)

STALE_SECONDS = 0.1
"""How soon to look again where the job was changed while it was reconciled: the watch tells of it about then."""


@dataclass
class _Memory:
    """What is known of a job besides its objects; a new operator finds it out again."""

    refusals: tuple[Refusal, ...] = ()
    report: Mapping[str, Any] | None = None
    workload: Mapping[str, Any] | None = None
    asking: asyncio.Task[None] | None = None


class Controller:
    """Reconciles jobs by their UID. `wake` asks for another run of a job."""

    def __init__(
        self, kube: Kube, store: Store, context: Context, wake: Callable[[str], None], metrics: Metrics
    ) -> None:
        self._kube, self._store, self._context, self._wake = kube, store, context, wake
        self._metrics = metrics
        self._memory: dict[str, _Memory] = {}

    async def reconcile(self, uid: str) -> float | None:
        """One run. Returns when to run again, in seconds, if time alone is a reason to."""
        begun, failed = time.perf_counter(), True
        try:
            again = await self._reconcile(uid)
            failed = False
            return again
        finally:
            self._metrics.reconciled(time.perf_counter() - begun, failed=failed)

    async def _reconcile(self, uid: str) -> float | None:
        raw = self._store.jobs.get(uid)
        if raw is None:
            self._forget(uid)
            return None
        memory = self._memory.setdefault(uid, _Memory())
        try:
            job = load(raw)
        except InvalidDocument as error:
            await self._publish(raw, 0, Event(Reason.INVALID, f"this operator cannot read the job: {error}"))
            return None
        about.set({"job": f"{job.metadata.namespace}/{job.metadata.name}", "uid": uid, "attempt": job.status.attempt})
        context = replace(self._context, profiles=self._store.profiles)
        outcome = reconcile(job, self._children(uid, memory), datetime.now(UTC), context)
        if not await self._write_status(job, outcome.status):
            return STALE_SECONDS
        refusals = await apply(outcome.actions, job, self._kube, self._store, lambda ask: self._ask(job, memory, ask))
        for event in outcome.events:
            await self._publish(raw, outcome.status.attempt, event)
        if refusals != memory.refusals:
            memory.refusals = refusals
            self._wake(uid)
        return outcome.requeue_after

    def _children(self, uid: str, memory: _Memory) -> Children:
        services = frozenset(child["metadata"]["name"] for child in self._store.children(uid, "Service"))
        return Children(self._store.children(uid, "Pod"), services, memory.refusals, memory.report, memory.workload)

    def _forget(self, uid: str) -> None:
        memory = self._memory.pop(uid, None)
        if memory is not None and memory.asking is not None:
            memory.asking.cancel()

    async def _write_status(self, job: HetTrainingJob, status: JobStatus) -> bool:
        """Write a status that changed. False: the job is not the one that was looked at any more."""
        if status == job.status:
            return True
        uid = job.metadata.uid
        metadata = {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "uid": uid,
            "resourceVersion": self._store.jobs[uid]["metadata"]["resourceVersion"],
        }
        manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status.dump()}
        try:
            written = await self._kube.apply_status(manifest)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        self._metrics.changed(job.status, status)
        if uid in self._store.jobs:
            self._store.put_job(written)
        return True

    def _ask(self, job: HetTrainingJob, memory: _Memory, ask: Question) -> None:
        if memory.asking is None or memory.asking.done():
            match ask:
                case AskReport():
                    memory.asking = asyncio.create_task(self._get_report(job, memory, ask))
                case AskQueue():
                    memory.asking = asyncio.create_task(self._get_workload(job, memory, ask))

    async def _get_workload(self, job: HetTrainingJob, memory: _Memory, ask: AskQueue) -> None:
        try:
            workload = await self._kube.get(ask.kind, job.metadata.namespace, ask.name)
        except (ApiError, Unreachable) as error:
            if not (isinstance(error, ApiError) and error.status == 404):
                log.warning("%s: %s %s was not read: %s", job.metadata.uid, ask.kind, ask.name, error)
            return
        if workload != memory.workload:
            memory.workload = workload
            self._wake(job.metadata.uid)

    async def _get_report(self, job: HetTrainingJob, memory: _Memory, ask: AskReport) -> None:
        try:
            secret = await self._kube.get("Secret", job.metadata.namespace, ask.secret)
        except (ApiError, Unreachable) as error:
            log.warning("%s: the token of %s was not read: %s", job.metadata.uid, ask.secret, error)
            return
        token = base64.b64decode(secret["data"]["token"]).decode()
        report = await ask_report(ask.address, ask.port, token)
        if report is not None and report != memory.report:
            memory.report = report
            self._wake(job.metadata.uid)

    async def _publish(self, job: Mapping[str, Any], attempt: int, event: Event) -> None:
        """An event under a name made of what it says: told again after a crash, it is there already."""
        metadata = job["metadata"]
        said = f"{metadata['uid']} {attempt} {event.reason} {event.message}"
        now = write_time(datetime.now(UTC))
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": event.type,
            "reason": event.reason.value,
            "message": event.message[:1024],
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        # What follows the first line is the user's own: in this log it would look like ours.
        line = event.message.partition("\n")[0]
        log.info("%s/%s: %s: %s", metadata["namespace"], metadata["name"], event.reason.value, line)
        try:
            await self._kube.create(manifest)
        except (ApiError, Unreachable) as error:
            if not (isinstance(error, ApiError) and error.status == 409):
                log.warning("an event was not published: %s", error)
