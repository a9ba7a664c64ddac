"""The status of a HetTrainingJob: what the operator saw and did."""

from typing import Annotated, Literal

from pydantic import Field

from hettrain.api.base import StatusModel

__all__ = ["Condition", "FirstFailure", "JobStatus", "PoolStatus", "Summary"]

Truth = Literal["True", "False", "Unknown"]


class Condition(StatusModel):
    """A condition, as every Kubernetes object has them."""

    type: str = Field(max_length=64)
    status: Truth
    reason: str = Field(max_length=128)
    message: str = Field("", max_length=4096)
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    observed_generation: int = 0


class PoolStatus(StatusModel):
    """Pods of one pool in the current attempt."""

    name: str = Field(max_length=63)
    active: int = Field(0, description="Pods that exist and have not finished.")
    ready: int = Field(0, description="Active pods that are ready.")
    succeeded: int = Field(0, description="Pods whose trainer ended with 0.")
    failed: int = Field(0, description="Pods whose trainer failed.")
    completed_indexes: str = Field(
        "", max_length=65536, description="Replicas that succeeded, as an Indexed Job writes them: 0,2-5."
    )
    share: str = Field("", max_length=8, description="The pool's part of each batch, as rank 0 reports it.")


class FirstFailure(StatusModel):
    """The failure that ended the last failed attempt."""

    attempt: int
    pod: str = Field(max_length=253)
    pool: str = Field(max_length=63)
    rank: int = Field(description="Rank of the pod's first process.")
    node: str = Field("", max_length=253)
    exit_code: int | None = None
    reason: str = Field(
        "", max_length=256, description="What the kubelet says (Error, OOMKilled, ...), or StartupDeadlineExceeded."
    )
    traceback: str = Field("", max_length=4096, description="The end of what the trainer wrote.")


class Summary(StatusModel):
    """Texts for `kubectl get`."""

    pools: str = Field("", max_length=2048)
    ready: str = Field("", max_length=32)


class JobStatus(StatusModel):
    """What the operator saw and did."""

    state: str = Field(
        "",
        max_length=32,
        description="The conditions in one word: Pending, Blocked, Suspended, Running, Restarting, Complete, Failed.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    observed_generation: int = Field(0, description="The generation of the spec that this status is about.")
    attempt: int = Field(0, description="The current gang: part of its pods' names, counted from 0.")
    restarts: int = Field(0, description="Restarts that count against failurePolicy.maxRestarts.")
    ignored_restarts: int = Field(0, description="Restarts by the action RestartIgnoreLimit, which count nowhere else.")
    restart_request: str | None = Field(
        None, max_length=256, description="The value of the annotation hetccl.io/restart that was last obeyed."
    )
    next_restart_time: str | None = Field(
        None, json_schema_extra={"format": "date-time"}, description="The current attempt starts no earlier."
    )
    pools: list[PoolStatus] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    sizes: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="Of an elastic job: pods of each pool in the current attempt."
    )
    caps: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="Of an elastic job: the most pods that a pool can get for now."
    )
    avoided_nodes: list[Annotated[str, Field(max_length=253)]] = Field(
        default_factory=list, max_length=256, description="Nodes whose preflight found something broken."
    )
    replicas: int = Field(0, description="Pods over all pools in the current attempt; what `kubectl scale` sees.")
    selector: str = Field("", max_length=256, description="What finds the job's pods; for autoscalers.")
    world_size: int = Field(0, description="Processes over all pools.")
    start_time: str | None = Field(
        None, json_schema_extra={"format": "date-time"}, description="When the job was first seen, or resumed."
    )
    attempt_start_time: str | None = Field(
        None, json_schema_extra={"format": "date-time"}, description="When the current attempt could start."
    )
    ready_time: str | None = Field(
        None, json_schema_extra={"format": "date-time"}, description="When all pods of the current attempt were ready."
    )
    completion_time: str | None = Field(None, json_schema_extra={"format": "date-time"})
    first_failure: FirstFailure | None = Field(None, description="The failure that ended the last failed attempt.")
    summary: Summary = Field(default_factory=Summary, description="Texts for `kubectl get`.")
