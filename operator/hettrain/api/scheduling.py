"""Who places the pods of a job, and when."""

from typing import Literal

from pydantic import Field

from hettrain.api.base import Model

__all__ = ["Scheduling"]


class Scheduling(Model):
    """Who places the pods, and when. Node selectors, tolerations and affinity are in the pools' templates."""

    gang: Literal["None", "Kubernetes", "Volcano", "Coscheduling"] = Field(
        "None",
        description="Who places all pods of all pools or none. Kubernetes: its own PodGroups (1.37, feature gate "
        "GenericWorkload). Volcano, Coscheduling: theirs. None: each pod by itself.",
    )
    queue: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="Kueue's LocalQueue that the job waits in (the label kueue.x-k8s.io/queue-name of the job wins); "
        "with gang Volcano, Volcano's queue.",
    )
    scheduler_name: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="Scheduler of pods whose template names none; volcano, or scheduler-plugins-scheduler, with these "
        "gangs.",
    )
    priority_class_name: str | None = Field(
        None, min_length=1, max_length=253, description="Priority class of all pods whose template names none."
    )
