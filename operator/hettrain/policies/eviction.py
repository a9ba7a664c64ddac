"""Pods that Kueue takes away: its quota went to somebody else, or its queue was stopped."""

from hettrain.policies.restart import request
from hettrain.policies.verdicts import Requeue
from hettrain.status.admission import evicted
from hettrain.status.view import View

__all__ = ["eviction", "stays_out"]

DEACTIVATED = "WorkloadEvictedDueToDeactivated"
"""How Kueue's reason begins where a Workload may not be admitted again by itself."""


def eviction(view: View) -> Requeue | None:
    """The whole gang goes back into the queue, as a new group. It comes before disruption, which it looks like."""
    found = evicted(view)
    return Requeue(found.reason, found.message) if found is not None else None


def stays_out(view: View) -> bool:
    """Whether somebody took the job out of its queue, by its Workload. A new group would undo that: so there is none
    until the user asks, by the annotation for a restart or by suspending and resuming the job."""
    conditions = view.status.conditions
    out = any(c.type == "Suspended" and c.status == "True" and c.reason.startswith(DEACTIVATED) for c in conditions)
    return out and request(view.job) == view.status.restart_request
