"""Why a pod cannot start, in words that name the pool and what is missing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hettrain.status.pods import Phase, Pod

__all__ = ["Trouble", "trouble"]

CANNOT_START = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
)


@dataclass(frozen=True)
class Trouble:
    """A reason for the condition Blocked, and its message. `missing`: resources that no node has enough of."""

    reason: str
    message: str
    missing: tuple[str, ...] = ()


def trouble(pod: Pod) -> Trouble | None:
    """Why a pod that waits does not start, as far as the scheduler or the kubelet has said."""
    if pod.phase is not Phase.WAITING:
        return None
    return next(_reasons(pod), None)


def _reasons(pod: Pod) -> Iterator[Trouble]:
    status = pod.raw.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") in ("Unschedulable", "SchedulingGated"):
            yield _unschedulable(pod, condition["reason"], condition.get("message", ""))
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            image = f" (image {container['image']})" if container.get("image") else ""
            yield Trouble(
                waiting["reason"],
                f"pool {pod.pool}: container {container['name']} of {pod.name}{image} cannot start: "
                f"{waiting.get('message') or waiting['reason']}",
            )


def _unschedulable(pod: Pod, reason: str, message: str) -> Trouble:
    missing = tuple(dict.fromkeys(re.findall(r"Insufficient ([^\s,]+?)[.,]?(?=[\s,]|$)", message)))
    short = f"not enough {', '.join(missing)}: " if missing else ""
    return Trouble(reason, f"pool {pod.pool}: no node has room for {pod.name}: {short}{message}", missing)
