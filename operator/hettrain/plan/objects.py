"""The children of a job besides its pods."""

from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.api.job import API_VERSION, KIND
from hettrain.plan.names import (
    ATTEMPT_LABEL,
    RESERVE_LABEL,
    budget_name,
    config_name,
    job_labels,
    service_name,
    token_name,
)
from hettrain.plan.ranks import members

__all__ = ["config_map", "disruption_budget", "metadata", "service", "token_secret"]


def metadata(job: HetTrainingJob, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Metadata of a child: the job owns it, so that it goes with the job."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
    }
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": job_labels(job) if labels is None else labels,
        "ownerReferences": [owner],
    }


def service(job: HetTrainingJob) -> dict[str, Any]:
    """The headless Service that gives each pod a name, from before it is ready: ranks meet in order to become ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, service_name(job)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": job_labels(job),
            "ports": [{"name": "rendezvous", "port": job.spec.rendezvous.port}],
        },
    }


def token_secret(job: HetTrainingJob, attempt: int) -> dict[str, Any]:
    """The Secret of an attempt, without its token: what carries the plan out makes that."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job, token_name(job, attempt)),
        "immutable": True,
        "type": "Opaque",
    }


def disruption_budget(job: HetTrainingJob, attempt: int) -> dict[str, Any]:
    """What keeps evictions off a gang: it loses all when it loses one.

    The number of pods rather than 100 %: reserve pods are none of them. Pods that are not ready may be evicted all the
    same: a gang that does not run must not hold up a drain.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(job, budget_name(job, attempt)),
        "spec": {
            "minAvailable": len(members(job)),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {
                "matchLabels": {**job_labels(job), ATTEMPT_LABEL: str(attempt)},
                "matchExpressions": [{"key": RESERVE_LABEL, "operator": "DoesNotExist"}],
            },
        },
    }


def config_map(job: HetTrainingJob, attempt: int, pool: str, nccl: dict[str, str]) -> dict[str, Any]:
    """The NCCL_* variables of a pool."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, config_name(job, attempt, pool)),
        "immutable": True,
        "data": dict(sorted(nccl.items())),
    }
