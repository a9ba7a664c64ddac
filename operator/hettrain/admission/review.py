"""One question of the API server about one job, and its answer."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from hettrain.admission.dry_run import Trial, try_pods
from hettrain.admission.queues import queue_warnings
from hettrain.admission.warnings import warnings
from hettrain.api import HetPoolProfile, HetTrainingJob, InvalidDocument, load, load_profile
from hettrain.gang.kueue import queue_of
from hettrain.kube import ApiError, Kube, Unreachable
from hettrain.plan import CannotPlan, Context, Plan, members, plan

__all__ = ["Reviewer"]

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 6.0
"""Less than the API server's own: what takes longer is left out rather than letting it give up."""

NODES_SECONDS = 30.0
MOST_WARNINGS, LONGEST_WARNING = 16, 256
"""The API server shortens what is longer."""


class Reviewer:
    """Answers AdmissionReviews. A job is only refused for what cannot become right by itself; what could not be found
    out is a warning: the webhook must not stand in the way of work."""

    def __init__(self, kube: Kube, context: Context) -> None:
        self._kube, self._context = kube, context
        self._nodes: tuple[float, list[dict[str, Any]]] = (-NODES_SECONDS, [])

    async def answer(self, review: Mapping[str, Any]) -> dict[str, Any]:
        """The AdmissionReview to send back."""
        request = review["request"]
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        errors, warned = await self._judge(request)
        if errors:
            message = "; ".join(errors)
            response |= {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": message}}
        if warned:
            response["warnings"] = [text[:LONGEST_WARNING] for text in warned[:MOST_WARNINGS]]
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

    async def _judge(self, request: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        document, before = request.get("object") or {}, request.get("oldObject") or {}
        if document.get("metadata", {}).get("deletionTimestamp") or document.get("spec") == before.get("spec"):
            return [], []
        try:
            job = load(document)
        except InvalidDocument:
            return [], []  # the CRD's own rules say it, with the place of each problem
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._look(job)
        except TimeoutError:
            return [], ["its pods were not tried: the API server did not answer in time"]

    async def _look(self, job: HetTrainingJob) -> tuple[list[str], list[str]]:
        profiles = await self._profiles(job)
        context = Context(
            delivery=self._context.delivery,
            image=self._context.image,
            pull_policy=self._context.pull_policy,
            profiles=profiles,
        )
        firsts = [member for member in members(job) if member.index == 0]
        try:
            planned = plan(job, job.status.attempt, firsts, context)
        except CannotPlan as error:
            return ([str(error)], []) if error.final else ([], [str(error)])
        pods = {member.pool.name: pod.manifest for member, pod in zip(firsts, planned.pods, strict=True)}
        trial, nodes, queued = await asyncio.gather(
            self._try(job, planned, pods), self._all_nodes(), self._queue(job, pods)
        )
        return list(trial.errors), [*planned.warnings, *warnings(job, pods, nodes), *queued, *trial.warnings]

    async def _try(self, job: HetTrainingJob, planned: Plan, pods: Mapping[str, Mapping[str, Any]]) -> Trial:
        # Somebody else's controller may make other pods of it.
        return Trial() if job.spec.managed_by else await try_pods(self._kube, pods, planned.groups, planned.kept)

    async def _queue(self, job: HetTrainingJob, pods: Mapping[str, Mapping[str, Any]]) -> list[str]:
        queue = queue_of(job)
        if queue is None:
            return []
        try:
            local = await self._find("LocalQueue", job.metadata.namespace, queue)
            cluster = await self._find("ClusterQueue", None, local["spec"]["clusterQueue"]) if local else None
        except (ApiError, Unreachable) as error:
            return [f"its queue could not be looked at: {error}"]
        return list(queue_warnings(job, pods, local, cluster))

    async def _find(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        try:
            return await self._kube.get(kind, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _profiles(self, job: HetTrainingJob) -> dict[str, HetPoolProfile]:
        found = {}
        for name in sorted({pool.profile for pool in job.spec.pools if pool.profile is not None}):
            try:
                found[name] = load_profile(await self._kube.get("HetPoolProfile", None, name))
            except (ApiError, Unreachable, InvalidDocument) as error:
                log.debug("profile %s: %s", name, error)
        return found

    async def _all_nodes(self) -> list[dict[str, Any]]:
        read, nodes = self._nodes
        if time.monotonic() - read > NODES_SECONDS:
            try:
                nodes = await self._kube.list_all("Node")
            except (ApiError, Unreachable) as error:
                log.warning("the nodes could not be read: %s", error)
                nodes = []
            self._nodes = (time.monotonic(), nodes)
        return nodes
