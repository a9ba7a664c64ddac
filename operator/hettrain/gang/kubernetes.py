"""Kubernetes' own gang scheduling: one PodGroup over all pools, named by every pod's schedulingGroup.

The API server drops a pod's field whose feature gate is off, without a word: so a pod is tried first.
"""

from typing import Any

from hettrain.gang.scheduler import Group, Scheduler

__all__ = ["KUBERNETES", "Kubernetes"]


class Kubernetes(Scheduler):
    """hettrain.gang.Scheduler."""

    remedy = (
        "spec.scheduling.gang Kubernetes needs Kubernetes 1.37 with the feature gate GenericWorkload, on API server, "
        "the controller manager and the scheduler, and with the API scheduling.k8s.io/v1beta1: turn them on, or "
        "choose another gang scheduler"
    )
    tried = "schedulingGroup"

    def objects(self, group: Group) -> list[dict[str, Any]]:
        """All or none is placed, and all or none is preempted."""
        priority = group.job.spec.scheduling.priority_class_name
        spec = {
            "schedulingPolicy": {"gang": {"minCount": group.size}},
            "disruptionMode": {"all": {}},
            **({"priorityClassName": priority} if priority else {}),
        }
        metadata = {"name": group.name}
        return [{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}]

    def join(self, group: Group, pod: dict[str, Any]) -> None:
        """The field that names the PodGroup."""
        pod["spec"]["schedulingGroup"] = {"podGroupName": group.name}


KUBERNETES = Kubernetes()
