"""Names and labels of a job's children. Names carry the attempt, so that an old child is never taken for a new one."""

from hettrain.api import HetTrainingJob
from hettrain.api.job import GROUP

__all__ = [
    "ATTEMPT_LABEL",
    "INDEX_LABEL",
    "JOB_LABEL",
    "POOL_LABEL",
    "RESERVE_LABEL",
    "budget_name",
    "config_name",
    "job_labels",
    "pod_name",
    "reserve_name",
    "service_name",
    "token_name",
]

JOB_LABEL = f"{GROUP}/job-name"
ATTEMPT_LABEL = f"{GROUP}/attempt"
POOL_LABEL = f"{GROUP}/pool"
INDEX_LABEL = f"{GROUP}/index"
RESERVE_LABEL = f"{GROUP}/reserve"
"""On pods that keep a place for a pool that may grow."""
MANAGED_BY = "app.kubernetes.io/managed-by"


def job_labels(job: HetTrainingJob) -> dict[str, str]:
    """Labels of every child."""
    return {JOB_LABEL: job.metadata.name, MANAGED_BY: "hettrain"}


def service_name(job: HetTrainingJob) -> str:
    """The headless Service under which the pods' names resolve."""
    return job.metadata.name


def pod_name(job: HetTrainingJob, attempt: int, pool: str, index: int) -> str:
    """A pod's name and host name."""
    return f"{job.metadata.name}-{attempt}-{pool}-{index:04d}"


def reserve_name(job: HetTrainingJob, attempt: int, pool: str, number: int) -> str:
    """The name of a reserve pod, as long as a pod's."""
    return f"{job.metadata.name}-{attempt}-{pool}-r{number:03d}"


def token_name(job: HetTrainingJob, attempt: int) -> str:
    """The Secret with an attempt's token."""
    return f"{job.metadata.name}-{attempt}-token"


def budget_name(job: HetTrainingJob, attempt: int) -> str:
    """The PodDisruptionBudget of an attempt."""
    return f"{job.metadata.name}-{attempt}"


def config_name(job: HetTrainingJob, attempt: int, pool: str) -> str:
    """The ConfigMap with the NCCL_* variables of a pool."""
    return f"{job.metadata.name}-{attempt}-{pool}-nccl"
