"""Pods that the cluster took away: eviction, preemption, a node that shuts down, `kubectl delete pod`."""

from hettrain.events import Reason
from hettrain.plan.names import pod_name
from hettrain.policies.verdicts import Restart
from hettrain.status.view import View

__all__ = ["disruption"]


def disruption(view: View) -> Restart | None:
    """The gang starts over, and nobody is blamed: collectives cannot lose a rank, but no rank has failed.

    It comes before failure: the peers of a rank that was taken away fail, too.
    """
    for pod in view.current.values():
        if pod.disruption is not None:
            where = f" on node {pod.node}" if pod.node else ""
            return Restart(
                "Disrupted", f"pod {pod.name}{where} was ended by the cluster: {pod.disruption}", event=Reason.DISRUPTED
            )
    if view.was_whole and view.missing:
        lost = view.missing[0]
        name = pod_name(view.job, view.status.attempt, lost.pool.name, lost.index)
        return Restart("Disrupted", f"pod {name} is gone without a result", event=Reason.DISRUPTED)
    return None
