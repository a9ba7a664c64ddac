"""The pods of a job: the user's template with what the pool, the profile and hetccl add to it."""

import copy
from dataclasses import dataclass
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.api.pool import Topology
from hettrain.api.scheduling import Scheduling
from hettrain.inject import inject
from hettrain.plan.context import Context
from hettrain.plan.environment import identity, merge
from hettrain.plan.names import (
    ATTEMPT_LABEL,
    INDEX_LABEL,
    POOL_LABEL,
    config_name,
    job_labels,
    pod_name,
    service_name,
    token_name,
)
from hettrain.plan.objects import metadata
from hettrain.plan.preflight import add_preflight, avoid_nodes
from hettrain.plan.profiles import Settings
from hettrain.plan.ranks import Member, processes_per_pod

__all__ = ["TRAINER", "PlannedPod", "plan_pod", "trainer_name"]

TRAINER = "trainer"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
SHM_GIB_PER_PROCESS = 4
"""Cap of /dev/shm: it holds NCCL's and hetccl's buffers (tens of MiB) and what DataLoader workers hand over (GiB).
Only what is written counts as memory."""


@dataclass(frozen=True)
class PlannedPod:
    """A pod to create, and what its user should know."""

    manifest: dict[str, Any]
    warnings: tuple[str, ...]


def trainer_name(spec: dict[str, Any]) -> str:
    """The container of a PodSpec that runs the ranks: `trainer`, else the first."""
    names: list[str] = [container["name"] for container in spec["containers"]]
    return TRAINER if TRAINER in names else names[0]


def plan_pod(job: HetTrainingJob, member: Member, attempt: int, settings: Settings, context: Context) -> PlannedPod:
    """One pod of one attempt."""
    pool = member.pool
    spec = copy.deepcopy(pool.template.spec.model_dump(by_alias=True, exclude_none=True))
    name = trainer_name(spec)
    trainer = next(container for container in spec["containers"] if container["name"] == name)
    spec |= {
        "restartPolicy": "Never",
        "hostname": pod_name(job, attempt, pool.name, member.index),
        "subdomain": service_name(job),
    }
    # Trainers have nothing to ask of the API server, and a variable for every Service of the namespace is noise.
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    trainer.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    users = [*(entry.model_dump() for entry in job.spec.hetccl.env), *trainer.get("env", [])]
    trainer["env"], kept = merge(identity(job, member, attempt, context), users)
    warnings = [f"its env sets {name}, which the operator sets too: the user's value is used" for name in kept]
    if settings.nccl:
        ours = {"configMapRef": {"name": config_name(job, attempt, pool.name)}}
        trainer["envFrom"] = [ours, *trainer.get("envFrom", [])]
    _devices(pool.gpus_per_replica, settings, trainer)
    labels = {ATTEMPT_LABEL: str(attempt), POOL_LABEL: pool.name}
    _placement(settings, spec)
    if settings.topology is not None:
        _arrange(settings.topology, {**job_labels(job), **labels}, spec)
    _scheduling(job.spec.scheduling, settings, spec)
    _shared_memory(processes_per_pod(pool), spec, trainer)
    if context.delivery != "Host":
        _token(token_name(job, attempt), context.token_file(attempt), spec, trainer)
    if job.spec.hetccl.inject:
        warnings += inject(spec, trainer, context.source(job))
    if job.spec.hetccl.preflight != "Off" and context.delivery != "Host":
        add_preflight(spec, trainer, job.spec.hetccl.preflight, context.home if job.spec.hetccl.inject else None)
    avoid_nodes(spec, job.status.avoided_nodes)
    labels[INDEX_LABEL] = str(member.index)
    theirs = pool.template.metadata
    annotations = dict(theirs.annotations)
    if settings.rdma is not None and settings.rdma.networks:
        annotations[NETWORKS] = ",".join([*filter(None, [annotations.get(NETWORKS)]), *settings.rdma.networks])
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata(job, spec["hostname"], {**theirs.labels, **job_labels(job), **labels}),
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
    }
    return PlannedPod(manifest, tuple(f"pool {pool.name}: {warning}" for warning in warnings))


def _devices(gpus: int | None, settings: Settings, trainer: dict[str, Any]) -> None:
    ours: dict[str, str] = {}
    if gpus is not None and settings.gpu_resource is not None:
        ours[settings.gpu_resource] = str(gpus)
    rdma = settings.rdma
    if rdma is not None and rdma.resource_name is not None:
        ours[rdma.resource_name] = str(rdma.count or 1)
        # Registering memory with a NIC pins it.
        capabilities = trainer.setdefault("securityContext", {}).setdefault("capabilities", {})
        if "IPC_LOCK" not in capabilities.setdefault("add", []):
            capabilities["add"].append("IPC_LOCK")
    if ours:
        resources = trainer.setdefault("resources", {})
        resources["limits"] = ours | resources.get("limits", {})


def _placement(settings: Settings, spec: dict[str, Any]) -> None:
    if settings.node_selector:
        spec["nodeSelector"] = {**settings.node_selector, **spec.get("nodeSelector", {})}
    if settings.tolerations:
        spec["tolerations"] = [*spec.get("tolerations", []), *settings.tolerations]
    if settings.runtime_class is not None:
        spec.setdefault("runtimeClassName", settings.runtime_class)
    if settings.groups:
        context = spec.setdefault("securityContext", {})
        theirs = context.get("supplementalGroups", [])
        context["supplementalGroups"] = [*theirs, *(group for group in settings.groups if group not in theirs)]


def _arrange(topology: Topology, pool: dict[str, str], spec: dict[str, Any]) -> None:
    """`pool`: the labels of the pool's pods in this attempt."""
    selector = {"matchLabels": pool}
    if topology.mode == "Pack":
        near = {"labelSelector": selector, "topologyKey": topology.key}
        affinity = spec.setdefault("affinity", {}).setdefault("podAffinity", {})
        affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(near)
    else:
        even = {"maxSkew": 1, "topologyKey": topology.key, "whenUnsatisfiable": "DoNotSchedule"}
        # Domains whose nodes the pods do not tolerate would hold them at their own count: none.
        even |= {"labelSelector": selector, "nodeTaintsPolicy": "Honor"}
        spec.setdefault("topologySpreadConstraints", []).append(even)


def _scheduling(scheduling: Scheduling, settings: Settings, spec: dict[str, Any]) -> None:
    priority = scheduling.priority_class_name or settings.priority_class
    if priority is not None:
        spec.setdefault("priorityClassName", priority)
    if scheduling.scheduler_name is not None:
        spec.setdefault("schedulerName", scheduling.scheduler_name)


def _shared_memory(processes: int, spec: dict[str, Any], trainer: dict[str, Any]) -> None:
    mounts = trainer.setdefault("volumeMounts", [])
    if any(mount.get("mountPath", "").rstrip("/") == "/dev/shm" for mount in mounts):  # noqa: S108 - a mount point
        return
    limit = f"{SHM_GIB_PER_PROCESS * processes}Gi"
    spec.setdefault("volumes", []).append(
        {"name": "hetccl-shm", "emptyDir": {"medium": "Memory", "sizeLimit": limit}},
    )
    mounts.append({"name": "hetccl-shm", "mountPath": "/dev/shm"})  # noqa: S108 - a mount point


def _token(secret: str, file: str, spec: dict[str, Any], trainer: dict[str, Any]) -> None:
    folder, _, name = file.rpartition("/")
    # Readable by whatever user the image runs as: the pod is what keeps others out.
    volume = {"secretName": secret, "defaultMode": 0o444, "items": [{"key": "token", "path": name}]}
    spec.setdefault("volumes", []).append({"name": "hetccl-token", "secret": volume})
    trainer["volumeMounts"].append({"name": "hetccl-token", "mountPath": folder, "readOnly": True})
