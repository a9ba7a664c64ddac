"""The job and its pods side by side: what the policies look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from hettrain.api import HetTrainingJob, JobStatus, PoolStatus
from hettrain.plan.ranks import Member, members
from hettrain.status.indexes import parse_indexes, write_indexes
from hettrain.status.pods import Phase, Pod

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """A job with its status so far, the pods that are there and the time."""

    job: HetTrainingJob
    pods: Sequence[Pod]
    now: datetime

    @property
    def status(self) -> JobStatus:
        """The job's status."""
        return self.job.status

    @cached_property
    def members(self) -> Sequence[Member]:
        """The pods that the current attempt should have."""
        return members(self.job)

    @cached_property
    def current(self) -> dict[tuple[str, int], Pod]:
        """The current attempt's pods, by pool and index."""
        wanted = {member.key for member in self.members}
        return {pod.key: pod for pod in self.pods if pod.attempt == self.status.attempt and pod.key in wanted}

    @cached_property
    def old(self) -> list[Pod]:
        """Pods that the current attempt has no use for."""
        kept = {pod.uid for pod in self.current.values()}
        return [pod for pod in self.pods if pod.uid not in kept]

    @cached_property
    def reserve(self) -> list[Pod]:
        """Pods that keep places for the current attempt's pools."""
        return [pod for pod in self.old if pod.attempt == self.status.attempt and pod.reserve]

    @cached_property
    def completed(self) -> dict[str, set[int]]:
        """Replicas that succeeded in this attempt, by pool: recorded earlier, or seen now."""
        result = {pool.name: set[int]() for pool in self.job.spec.pools}
        for pool in self.status.pools:
            if pool.name in result:
                result[pool.name] |= parse_indexes(pool.completed_indexes)
        for pod in self.current.values():
            if pod.phase is Phase.SUCCEEDED:
                result[pod.pool].add(pod.index)
        return result

    @cached_property
    def missing(self) -> list[Member]:
        """Members that have neither a pod nor a result."""
        return [m for m in self.members if m.key not in self.current and m.index not in self.completed[m.pool.name]]

    @cached_property
    def unready(self) -> list[Member]:
        """Members that are not ready and have not succeeded."""
        ready = {pod.key for pod in self.current.values() if pod.ready}
        return [m for m in self.members if m.key not in ready and m.index not in self.completed[m.pool.name]]

    @property
    def was_whole(self) -> bool:
        """Every member of this attempt has been seen: what is missing now was lost, and not merely not made yet."""
        seen = sum(pool.active + pool.succeeded + pool.failed for pool in self.status.pools)
        return seen == len(self.members)

    def holds(self, condition: str) -> bool:
        """Whether a condition was True when the status was written."""
        return any(found.type == condition and found.status == "True" for found in self.status.conditions)

    def counts(self) -> list[PoolStatus]:
        """The pods of each pool, counted."""
        result = []
        failed = {pool.name: pool.failed for pool in self.status.pools}
        for pool in self.job.spec.pools:
            pods = [pod for pod in self.current.values() if pod.pool == pool.name]
            done = self.completed[pool.name]
            active = [pod for pod in pods if pod.phase in (Phase.WAITING, Phase.RUNNING)]
            result.append(
                PoolStatus(
                    name=pool.name,
                    active=len(active),
                    ready=sum(pod.ready for pod in active),
                    succeeded=len(done),
                    # A failed pod may be deleted once the job is over: that it failed stays true.
                    failed=max(sum(pod.phase is Phase.FAILED for pod in pods), failed.get(pool.name, 0)),
                    completed_indexes=write_indexes(done),
                )
            )
        return result
