"""The environment contract (docs/architecture.md): what a trainer container is told, and by whom."""

from collections.abc import Iterable, Mapping
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.api.pool import Rdma
from hettrain.plan.context import Context
from hettrain.plan.names import pod_name
from hettrain.plan.ranks import Member, processes_per_pod, sizes, world_size

__all__ = ["identity", "merge", "nccl_variables"]


def identity(job: HetTrainingJob, member: Member, attempt: int, context: Context) -> dict[str, str]:
    """The variables that tell a pod who it is and where the others are."""
    spec = job.spec
    first = spec.pools[0].name
    address, port = context.address(job, pod_name(job, attempt, first, 0))
    processes = processes_per_pod(member.pool)
    variables = {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "PET_NNODES": str(sum(sizes(job).values())),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_NODE_RANK": str(member.node_rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
    }
    if spec.rendezvous.timeout_seconds is not None:
        variables["PET_RDZV_CONF"] = f"timeout={spec.rendezvous.timeout_seconds}"
    if all(processes_per_pod(pool) == 1 for pool in spec.pools):
        variables |= {"WORLD_SIZE": str(world_size(job)), "RANK": str(member.first_rank), "LOCAL_RANK": "0"}
    variables |= {
        "HETCCL_VENDOR": member.pool.vendor,
        "HETCCL_POOL": member.pool.name,
        "HETCCL_JOB": f"{job.metadata.namespace}/{job.metadata.name}/{attempt}",
        "HETCCL_TRANSPORT": spec.hetccl.transport,
        "HETCCL_TOKEN_FILE": context.token_file(attempt),
        "HETCCL_REPORT_PORT": str(context.report_port),
    }
    if spec.balance.mode != "Off":
        variables |= {"HETCCL_BALANCE": spec.balance.mode, "HETCCL_BALANCE_LOSS": spec.balance.loss}
        if member.pool.weight is not None:
            variables["HETCCL_WEIGHT"] = str(member.pool.weight)
    if spec.hetccl.simulate:
        variables["HETCCL_SIMULATE"] = "1"
    if spec.hetccl.inject:
        variables["HETCCL_HOME"] = context.home
    return variables


def nccl_variables(rdma: Rdma | None, defaults: Mapping[str, str]) -> dict[str, str]:
    """NCCL_* of a pool: the profile's defaults, then what the rdma block says."""
    variables = dict(defaults)
    if rdma is not None and rdma.ib_hca is not None:
        variables["NCCL_IB_HCA"] = rdma.ib_hca
    if rdma is not None and rdma.gid_index is not None:
        variables["NCCL_IB_GID_INDEX"] = str(rdma.gid_index)
    return variables


def merge(ours: Mapping[str, str], users: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The container's env: ours first, so that the user's may refer to them, each name once, the user's value wins.

    Returns it with the names of ours that the user set too.
    """
    theirs = {entry["name"]: entry for entry in users}
    kept = [name for name in ours if name in theirs]
    merged = [{"name": name, "value": value} for name, value in ours.items() if name not in theirs]
    return [*merged, *theirs.values()], kept
