"""Kueue: the pods of an attempt are a plain pod group, in the queue that the job names.

Every pod carries Kueue's gate from the start: it waits though Kueue may be down, or not look at its namespace. The
group's name carries the attempt, and a part of the job's UID: a job that was deleted and made anew under its name must
not meet the pods that Kueue still holds of the first.
"""

from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.api.job import MOST_QUEUED_POOLS
from hettrain.gang.scheduler import Group, Refused, Scheduler

__all__ = ["GATES", "GROUP_LABEL", "KUEUE", "MANAGED_LABEL", "ROLE", "TERMINATION", "Kueue", "queue_of"]

GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{GROUP}/queue-name"
GROUP_LABEL = f"{GROUP}/pod-group-name"
SIZE = f"{GROUP}/pod-group-total-count"
RETRIABLE = f"{GROUP}/retriable-in-group"
ROLE = f"{GROUP}/role-hash"
"""The annotation by which Kueue tells kinds of pods apart; it calls them so in its messages."""

MANAGED_LABEL = f"{GROUP}/managed"
"""What Kueue puts on every pod that it looks at."""

GATE = f"{GROUP}/admission"
GATES = (GATE, f"{GROUP}/topology")
TERMINATION = "TerminationTarget"
"""The condition of a pod that Kueue deletes, with the reason and the words for it."""


def queue_of(job: HetTrainingJob) -> str | None:
    """The LocalQueue that a job waits in: its label as on any kind that Kueue knows, else spec.scheduling.queue.

    With Volcano that is one of Volcano's queues.
    """
    scheduling = job.spec.scheduling
    return job.metadata.labels.get(QUEUE_LABEL) or (None if scheduling.gang == "Volcano" else scheduling.queue)


class Kueue(Scheduler):
    """hettrain.gang.Scheduler."""

    def check(self, group: Group) -> None:
        """A Workload has room for so many kinds of pods."""
        if len(group.sizes) > MOST_QUEUED_POOLS:
            raise Refused(
                "TooManyPools",
                f"the job has {len(group.sizes)} pools, and Kueue takes groups of at most {MOST_QUEUED_POOLS}: "
                "join some of them, or take the job out of the queue",
            )

    def join(self, group: Group, pod: dict[str, Any]) -> None:
        """Labels and annotations of a pod group, and the gate that Kueue opens."""
        metadata, spec = pod["metadata"], pod["spec"]
        job = group.job
        queue = queue_of(job)
        assert queue is not None
        # Its priority class, and whatever else Kueue reads from a job.
        metadata["labels"] |= {
            name: value for name, value in job.metadata.labels.items() if name.startswith(f"{GROUP}/")
        }
        metadata["labels"] |= {
            QUEUE_LABEL: queue,
            GROUP_LABEL: f"{job.metadata.name}-{job.metadata.uid[:5]}-{group.attempt}",
        }
        # A rank is never replaced within an attempt: once none runs any more, the group is over and its quota free.
        metadata.setdefault("annotations", {}).update({SIZE: str(group.size), RETRIABLE: "false"})
        gates = spec.setdefault("schedulingGates", [])
        if {"name": GATE} not in gates:
            gates.append({"name": GATE})


KUEUE = Kueue()
