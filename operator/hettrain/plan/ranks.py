"""Which pods a job has and which ranks they hold."""

from dataclasses import dataclass

from hettrain.api import HetTrainingJob
from hettrain.api.pool import Pool
from hettrain.plan.allocation import allocate

__all__ = ["Member", "members", "processes_per_pod", "sizes", "world_size"]


@dataclass(frozen=True)
class Member:
    """One pod of the gang: replica `index` of its pool, the `node_rank`-th pod of the job."""

    pool: Pool
    index: int
    node_rank: int
    first_rank: int

    @property
    def key(self) -> tuple[str, int]:
        """What tells the pods of one attempt apart."""
        return self.pool.name, self.index


def processes_per_pod(pool: Pool) -> int:
    """Processes that each pod of a pool runs."""
    return pool.nproc_per_node or pool.gpus_per_replica or 1


def sizes(job: HetTrainingJob) -> dict[str, int]:
    """Pods of each pool in the current attempt: an elastic job's were decided when it began, and are in the status."""
    if job.spec.elastic is None:
        return {pool.name: pool.replicas for pool in job.spec.pools}
    return dict(job.status.sizes) or allocate(job.spec, job.status.caps)


def members(job: HetTrainingJob) -> list[Member]:
    """Every pod of the current attempt, in rank order: the pools in their order, each pool's replicas in theirs."""
    result: list[Member] = []
    first_rank = 0
    there = sizes(job)
    for pool in job.spec.pools:
        for index in range(there[pool.name]):
            result.append(Member(pool, index, len(result), first_rank))
            first_rank += processes_per_pod(pool)
    return result


def world_size(job: HetTrainingJob) -> int:
    """Processes of the current attempt."""
    there = sizes(job)
    return sum(there[pool.name] * processes_per_pod(pool) for pool in job.spec.pools)
