"""spec.elastic: a gang of another size is another attempt, which nobody is blamed for.

Pods that cannot be had for a while make their pool smaller. While it is, reserve pods wait in the place of those that
are missing: once they have found nodes, the pool grows again.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from hettrain.events import Reason
from hettrain.gang import queue_of
from hettrain.plan.allocation import allocate, bounds
from hettrain.plan.ranks import sizes
from hettrain.policies.verdicts import Restart
from hettrain.status.pods import Pod
from hettrain.status.times import parse_time
from hettrain.status.view import View

__all__ = ["elastic", "elastic_until", "shortfall"]


def elastic(view: View) -> Restart | None:
    """Another size, where the user asks for it, where pods cannot be had, or where they can be had again."""
    if view.job.spec.elastic is None:
        return None
    caps = view.status.caps
    wanted = allocate(view.job.spec, caps)
    if wanted != sizes(view.job):
        return _resize(view, caps, "by spec.elastic.replicas")
    fewer = _too_few(view)
    if fewer:
        return _resize(view, {**caps, **fewer}, f"{_words(fewer)} could be had")
    more = _found(view)
    if more:
        full = allocate(view.job.spec, {})
        raised = {name: cap for name, cap in {**caps, **more}.items() if cap < full[name]}
        return _resize(view, raised, f"{_words(more)} can be had")
    return None


def elastic_until(view: View) -> datetime | None:
    """When to look whether pods are still missing, or as many reserve pods as can be have found nodes."""
    patience = _patience(view)
    if patience is None:
        return None
    times = [since + patience for since in _scheduled_since(view)]
    start = view.status.attempt_start_time
    if start is not None and view.status.ready_time is None:
        times.append(parse_time(start) + patience)
    return min((at for at in times if at > view.now), default=None)


def shortfall(view: View) -> Mapping[str, int]:
    """Reserve pods of each pool that a running gang should have: as many as could not be had when it was made."""
    if _patience(view) is None or view.status.ready_time is None or queue_of(view.job) is not None:
        return {}
    full, there = allocate(view.job.spec, {}), sizes(view.job)
    return {name: full[name] - there[name] for name in there if full[name] > there[name]}


def _resize(view: View, caps: Mapping[str, int], why: str) -> Restart | None:
    before, after = sizes(view.job), allocate(view.job.spec, caps)
    if after == before:
        return None
    change = ", ".join(f"{name} from {before[name]} to {after[name]}" for name in before if before[name] != after[name])
    return Restart("Resized", f"pool {change}: {why}", event=Reason.RESIZED, caps=dict(caps))


def _words(pods: Mapping[str, int]) -> str:
    return ", ".join(f"{count} pods of pool {name}" for name, count in pods.items())


def _patience(view: View) -> timedelta | None:
    elastic = view.job.spec.elastic
    seconds = elastic.shrink_after_seconds if elastic is not None else None
    return timedelta(seconds=seconds) if seconds is not None else None


def _too_few(view: View) -> dict[str, int]:
    """The pods that pools could get, where they got too few for too long, and still enough."""
    patience, start = _patience(view), view.status.attempt_start_time
    if patience is None or start is None or view.status.ready_time or view.now < parse_time(start) + patience:
        return {}
    homeless = [member for member in view.unready if not _placed(view.current.get(member.key))]
    result = {}
    for pool in view.job.spec.pools:
        missing = sum(member.pool.name == pool.name for member in homeless)
        had = sizes(view.job)[pool.name] - missing
        if missing and had >= bounds(pool)[0]:
            result[pool.name] = had
    return result


def _placed(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.node)


def _found(view: View) -> dict[str, int]:
    """The pods that pools could get now, by their reserve pods that have nodes: when all have, or no more come."""
    patience = _patience(view)
    result = {}
    for name, missing in shortfall(view).items():
        placed = [pod for pod in view.reserve if pod.pool == name and _placed(pod) and not pod.ended]
        waited = patience is not None and any(view.now >= since + patience for since in _since(placed))
        if len(placed) >= missing or (placed and waited):
            result[name] = sizes(view.job)[name] + len(placed)
    return result


def _scheduled_since(view: View) -> list[datetime]:
    return _since([pod for pod in view.reserve if _placed(pod)])


def _since(pods: list[Pod]) -> list[datetime]:
    """When each of these pods got its node."""
    return [
        parse_time(condition["lastTransitionTime"])
        for pod in pods
        for condition in pod.raw.get("status", {}).get("conditions", ())
        if condition["type"] == "PodScheduled" and condition.get("lastTransitionTime")
    ]
