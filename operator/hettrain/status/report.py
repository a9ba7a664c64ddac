"""What rank 0 reports of the ranks: whether hetccl took over in every pool."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.plan.ranks import processes_per_pod, sizes
from hettrain.status.conditions import Claim

__all__ = ["is_about", "judge_report", "shares"]


def is_about(report: Mapping[str, Any] | None, job: str) -> bool:
    """Whether there is a report, of the attempt that `job` names as HETCCL_JOB does."""
    return report is not None and report.get("job") == job


def judge_report(job: HetTrainingJob, report: Mapping[str, Any]) -> Claim:
    """The condition InjectionVerified from the answer of `GET /v1/report`."""
    ranks = report.get("ranks", [])
    seen = Counter(rank.get("pool") for rank in ranks)
    simulated = {rank.get("pool") for rank in ranks if rank.get("simulated")}
    lacking, present = [], []
    there = sizes(job)
    for pool in job.spec.pools:
        wanted, found = there[pool.name] * processes_per_pod(pool), seen[pool.name]
        suffix = " (simulated)" if pool.name in simulated else ""
        if found < wanted:
            lacking.append(f"pool {pool.name}: {found} of {wanted} ranks{suffix}")
        else:
            present.append(f"pool {pool.name}: {found} ranks{suffix}")
    if lacking:
        return "InjectionVerified", "False", "RanksMissing", f"hetccl runs in {'; '.join(lacking)}"
    return "InjectionVerified", "True", "Reported", f"hetccl runs in {'; '.join(present)}"


def shares(report: Mapping[str, Any]) -> dict[str, str]:
    """The part of each batch that each pool has, in percent; nothing where the job has no load balance."""
    told = report.get("shares")
    if not isinstance(told, Mapping):
        return {}
    return {str(pool): f"{part:.0%}" for pool, part in told.items() if isinstance(part, int | float)}
