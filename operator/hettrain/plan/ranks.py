"""Which pods a job has and which ranks they hold."""

from dataclasses import dataclass

from hettrain.api.job import JobSpec
from hettrain.api.pool import Pool

__all__ = ["Member", "members", "processes_per_pod", "world_size"]


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


def members(spec: JobSpec) -> list[Member]:
    """Every pod of the job, in rank order: the pools in their order, each pool's replicas in theirs."""
    result: list[Member] = []
    first_rank = 0
    for pool in spec.pools:
        for index in range(pool.replicas):
            result.append(Member(pool, index, len(result), first_rank))
            first_rank += processes_per_pod(pool)
    return result


def world_size(spec: JobSpec) -> int:
    """Processes of the job."""
    return sum(pool.replicas * processes_per_pod(pool) for pool in spec.pools)
