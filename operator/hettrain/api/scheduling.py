"""Who places the pods of a job, and when."""

from pydantic import Field

from hettrain.api.base import Model

__all__ = ["Scheduling"]


class Scheduling(Model):
    """Who places the pods, and when. Node selectors, tolerations and affinity are in the pools' templates."""

    queue: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="Kueue's LocalQueue that the job waits in; the label kueue.x-k8s.io/queue-name of the job wins.",
    )
    priority_class_name: str | None = Field(
        None, min_length=1, max_length=253, description="Priority class of all pods whose template names none."
    )
