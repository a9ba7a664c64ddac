"""What Kueue has decided about a job, as the pods and the Workload of the attempt show it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hettrain.api import Condition
from hettrain.gang.kueue import GATES, GROUP_LABEL, MANAGED_LABEL, ROLE, TERMINATION, queue_of
from hettrain.status.blocked import Trouble
from hettrain.status.pods import Pod
from hettrain.status.times import parse_time
from hettrain.status.view import View

__all__ = ["admitted", "evicted", "group_of", "unmanaged", "waiting_since", "why_it_waits"]


def admitted(view: View) -> bool:
    """Whether the current attempt may run: all of its pods are there, and Kueue holds none of them back.

    A job that waits in no queue may always run.
    """
    if queue_of(view.job) is None or view.status.attempt_start_time is not None:
        return True
    return not view.missing and not any(_gated(pod) for pod in view.current.values())


def evicted(view: View) -> Trouble | None:
    """Why Kueue takes the pods away, where it does."""
    for pod in view.current.values():
        for condition in pod.raw.get("status", {}).get("conditions", ()):
            if condition["type"] == TERMINATION and condition["status"] == "True":
                return Trouble(condition.get("reason") or TERMINATION, condition.get("message", ""))
    return None


def waiting_since(view: View) -> datetime | None:
    """Since when the gang waits in its queue, as the status has it; None: it does not."""
    if queue_of(view.job) is None:
        return None
    times = (found.last_transition_time for found in view.status.conditions if _suspended(found))
    return next(map(parse_time, times), None)


def unmanaged(view: View) -> Trouble | None:
    """Where Kueue does not look at the pods that wait for it."""
    for pod in view.current.values():
        if _gated(pod) and MANAGED_LABEL not in _labels(pod):
            return Trouble(
                "SchedulerMissing",
                f"pod {pod.name} waits in queue {queue_of(view.job)}, but Kueue did not look at it when it was made: "
                "install Kueue, with `pod` among its integrations.frameworks and this namespace in its "
                "managedJobsNamespaceSelector, then suspend the job and resume it",
            )
    return None


def group_of(pod: Pod) -> str | None:
    """The name of a pod's group, and of its Workload."""
    return _labels(pod).get(GROUP_LABEL)


def why_it_waits(view: View, workload: Mapping[str, Any] | None) -> str:
    """What Kueue says of the group's Workload (never of an earlier group's), with our names for its kinds of pods."""
    groups = {group_of(pod) for pod in view.current.values()}
    said = _words(workload.get("status", {})) if workload and workload["metadata"]["name"] in groups else ""
    for pod in view.current.values():
        role = pod.raw["metadata"].get("annotations", {}).get(ROLE)
        if role:
            said = said.replace(f"pod set {role}", f"pool {pod.pool}")
    waits = f"the job waits in queue {queue_of(view.job)} of Kueue"
    return f"{waits}: {said}" if said else waits


def _words(status: Mapping[str, Any]) -> str:
    """Why there is no quota; once there is, which admission checks are waited for."""
    reserved = next((each for each in status.get("conditions", ()) if each["type"] == "QuotaReserved"), None)
    if reserved is None or reserved["status"] != "True":
        return str(reserved.get("message", "")) if reserved else ""
    checks = [check for check in status.get("admissionChecks", ()) if check.get("state") != "Ready"]
    open_ = ", ".join(f"{check['name']} ({check.get('message') or check.get('state')})" for check in checks)
    return f"quota is reserved; missing are the admission checks {open_}" if checks else ""


def _suspended(condition: Condition) -> bool:
    return condition.type == "Suspended" and condition.status == "True"


def _gated(pod: Pod) -> bool:
    return any(gate["name"] in GATES for gate in pod.raw.get("spec", {}).get("schedulingGates", ()))


def _labels(pod: Pod) -> Mapping[str, str]:
    labels: Mapping[str, str] = pod.raw["metadata"].get("labels", {})
    return labels
