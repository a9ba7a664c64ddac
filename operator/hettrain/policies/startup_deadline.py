"""spec.startupDeadlineSeconds: how long the pods of an attempt may take until all of them are ready."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from hettrain.api import FirstFailure
from hettrain.api.policies import STARTUP_DEADLINE_EXCEEDED
from hettrain.plan.names import pod_name
from hettrain.plan.ranks import sizes
from hettrain.policies.failure import judge
from hettrain.policies.verdicts import Finish, Restart
from hettrain.status.times import parse_time
from hettrain.status.view import View

__all__ = ["startup_deadline", "startup_until"]


def startup_until(view: View) -> datetime | None:
    """When all pods must be ready. The clock starts when the attempt may, and an attempt that was ready has started."""
    seconds, start = view.job.spec.startup_deadline_seconds, view.status.attempt_start_time
    if seconds is None or start is None or view.status.ready_time or view.status.completion_time:
        return None
    return parse_time(start) + timedelta(seconds=seconds)


def startup_deadline(view: View) -> Finish | Restart | None:
    """A failure like that of a pod, so that the budget limits it and rules may know it: other nodes may do better."""
    end = startup_until(view)
    if end is None or view.now < end or not view.unready:
        return None
    return judge(view, [(found, found.traceback) for found in _late(view)], STARTUP_DEADLINE_EXCEEDED)


def _late(view: View) -> Iterator[FirstFailure]:
    """The first late pod of each pool that has one."""
    said = _sentence(view)
    for pool in view.job.spec.pools:
        late = next((member for member in view.unready if member.pool.name == pool.name), None)
        if late is not None:
            pod = view.current.get(late.key)
            yield FirstFailure(
                attempt=view.status.attempt,
                pod=pod_name(view.job, view.status.attempt, pool.name, late.index),
                pool=pool.name,
                rank=late.first_rank,
                node=pod.node if pod else "",
                reason=STARTUP_DEADLINE_EXCEEDED,
                traceback=said,
            )


def _sentence(view: View) -> str:
    parts = []
    there = sizes(view.job)
    for pool in view.job.spec.pools:
        late = [member for member in view.unready if member.pool.name == pool.name]
        if late:
            first = pod_name(view.job, view.status.attempt, pool.name, late[0].index)
            parts.append(
                f"{len(late)} of {there[pool.name]} of pool {pool.name} ({first}{', ...' if late[1:] else ''})"
            )
    blocked = next((f": {c.message}" for c in view.status.conditions if c.type == "Blocked" and c.status == "True"), "")
    seconds = view.job.spec.startup_deadline_seconds
    return f"not all pods were ready {seconds} s after the attempt started; missing are {', '.join(parts)}{blocked}"
