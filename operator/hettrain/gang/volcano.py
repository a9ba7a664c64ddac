"""Volcano: a PodGroup of its own, found by an annotation of the pods, which its scheduler places."""

from typing import Any

from hettrain.gang.scheduler import Group, Scheduler

__all__ = ["VOLCANO", "Volcano"]


class Volcano(Scheduler):
    """hettrain.gang.Scheduler."""

    remedy = (
        "spec.scheduling.gang Volcano needs Volcano and its CRD podgroups.scheduling.volcano.sh: install it, or choose "
        "another gang scheduler"
    )

    def objects(self, group: Group) -> list[dict[str, Any]]:
        """All pods of all pools, in the queue that the job names."""
        scheduling = group.job.spec.scheduling
        spec = {
            "minMember": group.size,
            **({"queue": scheduling.queue} if scheduling.queue else {}),
            **({"priorityClassName": scheduling.priority_class_name} if scheduling.priority_class_name else {}),
        }
        metadata = {"name": group.name}
        return [{"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}]

    def join(self, group: Group, pod: dict[str, Any]) -> None:
        """The annotation, and Volcano's scheduler."""
        pod["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = group.name
        pod["spec"].setdefault("schedulerName", group.job.spec.scheduling.scheduler_name or "volcano")


VOLCANO = Volcano()
