"""One pod, as far as the operator looks at it. Anything with a pod's fields will do: a process can have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from hettrain.plan.names import ATTEMPT_LABEL, INDEX_LABEL, POOL_LABEL, RESERVE_LABEL
from hettrain.plan.pods import trainer_name
from hettrain.status.findings import in_words
from hettrain.status.times import parse_time

__all__ = ["Failure", "Phase", "Pod", "observe"]

DISRUPTIONS = ("Evicted", "NodeLost", "NodeShutdown", "Preempted", "Preempting", "Shutdown", "Terminated")
"""Reasons of a failed pod that say that its node or the cluster ended it, from before DisruptionTarget existed."""


class Phase(Enum):
    """How far the trainer is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """How a trainer failed. `exit_code` is None where its container never ended by itself."""

    exit_code: int | None
    reason: str
    message: str
    finished: datetime | None


@dataclass(frozen=True)
class Pod:
    """One pod of a job. `ended`: none of its containers runs any more. `held`: all that is left of it is a finalizer.
    `leaving`: when it should be gone at the latest,
    once somebody asked for its deletion. `disruption`: why the cluster ended it, where it did."""

    name: str
    uid: str
    attempt: int
    pool: str
    index: int
    node: str
    address: str
    phase: Phase
    ended: bool
    held: bool
    ready: bool
    leaving: datetime | None
    disruption: str | None
    failure: Failure | None
    reserve: bool
    raw: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        """What tells the pods of one attempt apart."""
        return self.pool, self.index


def observe(pod: Mapping[str, Any]) -> Pod:
    """Read a pod. One whose labels somebody changed belongs to attempt -1, which is never the current one."""
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    labels = metadata.get("labels", {})
    attempt, index = labels.get(ATTEMPT_LABEL, ""), labels.get(INDEX_LABEL, "")
    leaving = metadata.get("deletionTimestamp")
    # The API server deletes a pod once its grace period is 0: the kubelet says so when it is done, or no node has it.
    held = leaving is not None and metadata.get("deletionGracePeriodSeconds") == 0
    ended = held or status.get("phase") in ("Succeeded", "Failed")
    terminated = _trainer_terminated(spec, status)
    if terminated is not None:
        phase = Phase.SUCCEEDED if terminated.get("exitCode") == 0 else Phase.FAILED
    elif status.get("phase") in ("Succeeded", "Failed"):
        phase = Phase.SUCCEEDED if status["phase"] == "Succeeded" else Phase.FAILED
    else:
        phase = Phase.RUNNING if status.get("phase") == "Running" else Phase.WAITING
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        attempt=int(attempt) if attempt.isdecimal() else -1,
        pool=labels.get(POOL_LABEL, ""),
        index=int(index) if index.isdecimal() else -1,
        node=spec.get("nodeName", ""),
        address=status.get("podIP", ""),
        phase=phase,
        ended=ended,
        held=held,
        ready=phase is Phase.RUNNING and _condition(status, "Ready").get("status") == "True",
        leaving=parse_time(leaving) if leaving else None,
        disruption=_disruption(status, phase, leaving),
        failure=_failure(status, terminated) if phase is Phase.FAILED else None,
        reserve=RESERVE_LABEL in labels,
        raw=pod,
    )


def _trainer_terminated(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the trainer ended. It alone decides: a sidecar that outlives it does not keep the job from ending."""
    if not spec.get("containers"):
        return None
    name = trainer_name(dict(spec))
    for container in status.get("containerStatuses", ()):
        if container["name"] == name:
            terminated: Mapping[str, Any] | None = container.get("state", {}).get("terminated")
            return terminated
    return None


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((found for found in status.get("conditions", ()) if found["type"] == kind), {})


def _disruption(status: Mapping[str, Any], phase: Phase, leaving: str | None) -> str | None:
    if phase is Phase.SUCCEEDED:
        return None
    target = _condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        return str(target.get("reason") or "DisruptionTarget")
    if phase is Phase.FAILED and status.get("reason") in DISRUPTIONS:
        return str(status["reason"])
    return "Deleted" if leaving else None


def _failure(status: Mapping[str, Any], terminated: Mapping[str, Any] | None) -> Failure:
    if terminated is not None:
        finished = terminated.get("finishedAt")
        return Failure(
            exit_code=terminated.get("exitCode"),
            reason=terminated.get("reason") or "Error",
            message=terminated.get("message") or "",
            finished=parse_time(finished) if finished else None,
        )
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        ended = container.get("state", {}).get("terminated") or {}
        if ended.get("exitCode"):
            message = f"container {container['name']}: {in_words(ended.get('message') or '')}"
            return Failure(ended["exitCode"], ended.get("reason") or "Error", message, None)
    return Failure(None, status.get("reason") or "Failed", status.get("message") or "", None)
