"""HetTrainingJob: what a user writes."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from hettrain.api.base import Model, OpenModel, Rule
from hettrain.api.policies import FailurePolicy, SuccessPolicy
from hettrain.api.pool import LABEL, NAME_BUDGET, EnvVar, Pool
from hettrain.api.scheduling import Scheduling
from hettrain.api.status import JobStatus

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "MANAGER",
    "PLURAL",
    "REPORT_PORT",
    "RESTART_ANNOTATION",
    "VERSION",
    "Balance",
    "Elastic",
    "HetTrainingJob",
    "Hetccl",
    "JobSpec",
    "Metadata",
    "Rendezvous",
]

GROUP, VERSION, KIND, PLURAL = "hetccl.io", "v1alpha1", "HetTrainingJob", "hettrainingjobs"
API_VERSION = f"{GROUP}/{VERSION}"
MANAGER = "hetccl.io/hettrain"
"""The value of spec.managedBy, besides none at all, that means this operator."""

REPORT_PORT = 29600
"""Where rank 0 answers GET /v1/report in a pod."""


RESTART_ANNOTATION = f"{GROUP}/restart"
"""Whenever its value changes, the gang starts over."""

MOST_QUEUED_POOLS = 8
"""Kinds of pods that a group of Kueue's may have (pod sets of a Workload)."""

MAX_SECONDS = 10 * 365 * 24 * 3600
"""The longest time that a field may ask for: anything above it is a mistake."""


class Metadata(OpenModel):
    """ObjectMeta, as far as we look into it."""

    name: str = Field(min_length=1)
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class Hetccl(Model):
    """How hetccl gets into the user's images and how it works there."""

    image: str | None = Field(
        None, min_length=1, max_length=1024, description="Image that holds the hetccl tree; the operator's if not set."
    )
    delivery: Literal["Auto", "ImageVolume", "InitContainer"] = Field(
        "Auto",
        description="How the tree gets into the pods: mounted from its image, or copied by an init container. "
        "Auto: ImageVolume where the API server supports it.",
    )
    transport: Literal["Auto", "RDMA", "TCP"] = Field(
        "Auto", description="Wires between hosts. RDMA: fail rather than fall back to TCP."
    )
    preflight: Literal["Off", "Warn", "Fail"] = Field(
        "Off",
        description="Run `hetccl doctor` in every pod before the trainers start; the condition PreflightPassed has "
        "what it finds. Fail: a pod where hetccl does not work fails, and its node is avoided from then on.",
    )
    inject: bool = Field(True, description="false: the images hold hetccl already; nothing is mounted or wrapped.")
    simulate: bool = Field(
        False, description="Hide the GPUs and let every rank work on the CPU; reports call it simulated."
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=64,
        description="Environment of every trainer container, for hetccl's settings. The template's own entries win.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class Rendezvous(Model):
    """Where the ranks meet."""

    rules: ClassVar = (
        Rule(
            f"self.port != {REPORT_PORT}",
            f"port {REPORT_PORT} is where rank 0 reports: choose another port",
            lambda self: self.port != REPORT_PORT,
            "port",
        ),
    )

    port: int = Field(29500, ge=1024, le=65535, description="MASTER_PORT: rank 0 listens there.")
    timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="How long torchrun waits for the other pods (its rendezvous setting `timeout`).",
    )


class Elastic(Model):
    """A job whose pools have sizes between their minReplicas and maxReplicas."""

    replicas: int | None = Field(
        None,
        ge=1,
        le=160000,
        description="Pods over all pools, spread over them in proportion to their replicas; what `kubectl scale` sets. "
        "If not set: what the pools' replicas add up to.",
    )
    shrink_after_seconds: int | None = Field(
        None,
        ge=1,
        le=86400,
        description="A pool gets smaller when its pods find no nodes for so long, and grows back when they do. "
        "If not set: pods are waited for.",
    )


class Balance(Model):
    """How the samples of each batch are spread over ranks of unequal speed."""

    mode: Literal["Off", "Static", "Auto"] = Field(
        "Off",
        description="Static: by the pools' weights or, where a pool has none, by what the first steps measure. "
        "Auto: by the step times, followed as they change.",
    )
    loss: Literal["Mean", "Sum"] = Field(
        "Mean",
        description="What the script's losses are. Mean: over the samples of a rank. Sum: sums, or normalised over the "
        "samples of all ranks by the script itself, so that gradients are not weighed again.",
    )


def _unchanged(field: str, message: str) -> Rule:
    return Rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} cannot be changed: {message}",
    )


_ANEW = "delete the job and create it anew"


def _fits(spec: "JobSpec") -> bool:
    if spec.elastic is None or spec.elastic.replicas is None:
        return True
    least = sum(pool.min_replicas or pool.replicas for pool in spec.pools)
    return least <= spec.elastic.replicas <= sum(pool.max_replicas or pool.replicas for pool in spec.pools)


class JobSpec(Model):
    """The job that the user asks for."""

    rules: ClassVar = (
        Rule("self.pools == oldSelf.pools", f"pools cannot be changed: {_ANEW}"),
        _unchanged("hetccl", _ANEW),
        _unchanged("rendezvous", _ANEW),
        _unchanged("balance", _ANEW),
        _unchanged("successPolicy", _ANEW),
        _unchanged("disruptionBudget", _ANEW),
        _unchanged("scheduling", _ANEW),
        _unchanged("managedBy", "the controller that manages a job is chosen when it is created"),
        Rule(
            "self.pools.all(p, self.pools.exists_one(q, q.name == p.name))",
            "pools have the same name: give each pool a name of its own",
            lambda self: len({pool.name for pool in self.pools}) == len(self.pools),
            "pools",
        ),
        Rule(
            "has(self.elastic) || self.pools.all(p, !has(p.minReplicas) && !has(p.maxReplicas))",
            "minReplicas and maxReplicas are for elastic jobs: add `elastic: {}`, or remove them from the pools",
            lambda self: self.elastic is not None or not any(p.min_replicas or p.max_replicas for p in self.pools),
            "elastic",
        ),
        Rule(
            "!has(self.elastic) || !has(self.elastic.shrinkAfterSeconds) || self.scheduling.gang == 'None'",
            "elastic.shrinkAfterSeconds needs pods that find nodes one by one, and a gang scheduler gives nodes to all "
            "or none: remove it, or scheduling.gang",
            lambda self: not (self.elastic and self.elastic.shrink_after_seconds and self.scheduling.gang != "None"),
            "elastic.shrinkAfterSeconds",
        ),
        Rule(
            "has(self.elastic) == has(oldSelf.elastic)",
            f"elastic can neither be added nor removed: {_ANEW}",
        ),
        Rule(
            "!has(self.elastic) || !has(self.elastic.replicas) || (self.elastic.replicas >= "
            "self.pools.map(p, has(p.minReplicas) ? p.minReplicas : p.replicas).sum() && self.elastic.replicas <= "
            "self.pools.map(p, has(p.maxReplicas) ? p.maxReplicas : p.replicas).sum())",
            "elastic.replicas is out of what the pools allow: at least their minReplicas and at most their "
            "maxReplicas, added up (replicas, where a pool does not say)",
            _fits,
            "elastic.replicas",
        ),
        Rule(
            "!has(self.failurePolicy.rules) || self.failurePolicy.rules.all(r, !has(r.pools) || "
            "r.pools.all(n, self.pools.exists(p, p.name == n)))",
            "failurePolicy.rules names a pool that the job does not have: name one of spec.pools",
            lambda self: {name for rule in self.failure_policy.failure_rules for name in rule.pools} <= _names(self),
            "failurePolicy.rules",
        ),
        Rule(
            "!has(self.successPolicy.pools) || self.successPolicy.pools.all(n, self.pools.exists(p, p.name == n))",
            "successPolicy.pools names a pool that the job does not have: name one of spec.pools",
            lambda self: {*self.success_policy.pools} <= _names(self),
            "successPolicy.pools",
        ),
        Rule(
            "!has(self.scheduling.queue) || self.scheduling.gang == 'Volcano' || "
            f"size(self.pools) <= {MOST_QUEUED_POOLS}",
            f"Kueue takes jobs of at most {MOST_QUEUED_POOLS} pools: join some of them, or take scheduling.queue out",
            lambda self: (
                self.scheduling.queue is None
                or self.scheduling.gang == "Volcano"
                or len(self.pools) <= MOST_QUEUED_POOLS
            ),
            "pools",
        ),
    )

    pools: list[Pool] = Field(
        min_length=1,
        max_length=16,
        description="The pools of the job. Their order gives the ranks: the first pool's pods come first.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    hetccl: Hetccl = Field(default_factory=Hetccl, description="hetccl in the pods.")
    rendezvous: Rendezvous = Field(default_factory=Rendezvous, description="Where the ranks meet.")
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy, description="What happens when a pod fails.")
    success_policy: SuccessPolicy = Field(default_factory=SuccessPolicy, description="When the job has succeeded.")
    elastic: Elastic | None = Field(
        None, description="Makes the job elastic: sizes of pools change, each time as a new attempt of the whole gang."
    )
    balance: Balance = Field(default_factory=Balance, description="Load balance over pools of unequal speed.")
    scheduling: Scheduling = Field(default_factory=Scheduling, description="Who places the pods, and when.")
    suspend: bool = Field(False, description="true: the pods are deleted; false again: the job starts over.")
    active_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=MAX_SECONDS,
        description="The job fails when it is not done so long after it started; suspended, it has not started.",
    )
    startup_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=MAX_SECONDS,
        description="An attempt has failed when not all of its pods are ready so long after it started.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=MAX_SECONDS,
        description="The job is deleted, with all that is left of it, so long after it ended. If not set: never.",
    )
    clean_pod_policy: Literal["Running", "All", "None"] = Field(
        "Running",
        description="Which pods are deleted when the job ends. Running: those that have not finished; the others stay "
        "for their logs. None: those that run go on, and keep their GPUs.",
    )
    disruption_budget: Literal["Off", "Gang"] = Field(
        "Off",
        description="Gang: a PodDisruptionBudget keeps evictions (drains) off all pods of an attempt while they are "
        "ready; the drain waits until the job is over or suspended.",
    )
    managed_by: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description=f"The controller that manages this job. Anything but {MANAGER} keeps this operator away from it.",
    )


class HetTrainingJob(Model):
    """One PyTorch program over pools of several vendors."""

    rules: ClassVar = (
        Rule(
            f"self.metadata.name.matches('{LABEL}') && size(self.metadata.name) <= 63",
            "metadata.name also names the job's Service: use lower case letters, digits and dashes, a letter first",
            lambda self: _is_label(self.metadata.name),
            "metadata.name",
        ),
        Rule(
            f"self.spec.pools.all(p, size(self.metadata.name) + size(p.name) <= {NAME_BUDGET})",
            f"metadata.name and spec.pools[].name together exceed {NAME_BUDGET} characters, "
            "so that the pods' names would exceed 63: shorten one of them",
            lambda self: all(len(self.metadata.name) + len(pool.name) <= NAME_BUDGET for pool in self.spec.pools),
            "metadata.name",
        ),
    )

    api_version: Literal["hetccl.io/v1alpha1"]
    kind: Literal["HetTrainingJob"]
    metadata: Metadata
    spec: JobSpec = Field(description="The job that the user asks for.")
    status: JobStatus = Field(default_factory=JobStatus, description="What the operator sees; written by it.")


def _names(spec: JobSpec) -> set[str]:
    return {pool.name for pool in spec.pools}


def _is_label(name: str) -> bool:
    return len(name) <= 63 and re.fullmatch(LABEL, name) is not None
