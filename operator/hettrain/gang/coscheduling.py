"""The coscheduling plug-in of scheduler-plugins: a PodGroup of its own, found by a label of the pods."""

from typing import Any

from hettrain.gang.scheduler import Group, Scheduler

__all__ = ["COSCHEDULING", "Coscheduling"]


class Coscheduling(Scheduler):
    """hettrain.gang.Scheduler."""

    remedy = (
        "spec.scheduling.gang Coscheduling needs the plug-in of scheduler-plugins and its CRD "
        "podgroups.scheduling.x-k8s.io: install them, or choose another gang scheduler"
    )

    def objects(self, group: Group) -> list[dict[str, Any]]:
        """All pods."""
        return [
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": group.name},
                "spec": {"minMember": group.size},
            }
        ]

    def join(self, group: Group, pod: dict[str, Any]) -> None:
        """The label, and the name under which scheduler-plugins' own chart runs the scheduler."""
        pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group.name
        name = group.job.spec.scheduling.scheduler_name or "scheduler-plugins-scheduler"
        pod["spec"].setdefault("schedulerName", name)


COSCHEDULING = Coscheduling()
