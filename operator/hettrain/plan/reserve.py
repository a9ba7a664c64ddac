"""Pods that keep a place for a pool that may grow: scheduled as the pool's own, and idle."""

from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.api.pool import Pool
from hettrain.plan.context import Context
from hettrain.plan.names import ATTEMPT_LABEL, POOL_LABEL, RESERVE_LABEL, job_labels, reserve_name
from hettrain.plan.objects import metadata
from hettrain.plan.pods import plan_pod, trainer_name
from hettrain.plan.profiles import settings
from hettrain.plan.ranks import Member

__all__ = ["plan_reserve"]

SCHEDULED_BY = (
    "affinity",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
    "imagePullSecrets",
)
"""What of a pod's spec decides where it goes, and what its image needs."""


def plan_reserve(job: HetTrainingJob, pool: Pool, attempt: int, number: int, context: Context) -> dict[str, Any]:
    """Reserve pod `number` of a pool. Its image is the pool's own, and it does nothing. Raises CannotPlan."""
    spec = plan_pod(job, Member(pool, 0, 0, 0), attempt, settings(pool, context), context).manifest["spec"]
    trainer = next(container for container in spec["containers"] if container["name"] == trainer_name(spec))
    idle = {
        "name": "reserve",
        "image": trainer["image"],
        "command": ["sleep", "infinity"],
        **{key: trainer[key] for key in ("imagePullPolicy", "resources") if key in trainer},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    labels = {**job_labels(job), ATTEMPT_LABEL: str(attempt), POOL_LABEL: pool.name, RESERVE_LABEL: "true"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(job, reserve_name(job, attempt, pool.name, number), labels),
        "spec": {
            **{key: spec[key] for key in SCHEDULED_BY if key in spec},
            "containers": [idle],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        },
    }
