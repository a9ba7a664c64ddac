"""What a plan depends on besides the job: where it will run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hettrain.api import HetPoolProfile, HetTrainingJob
from hettrain.api.job import REPORT_PORT
from hettrain.inject import Delivery, PullPolicy, Source
from hettrain.plan.names import service_name

__all__ = ["HOME", "TOKEN_FILE", "Context", "cluster_address"]

HOME = "/opt/hetccl"
TOKEN_FILE = "/run/hetccl/token"  # noqa: S105 - a path, not a secret


def cluster_address(job: HetTrainingJob, pod: str) -> tuple[str, int]:
    """Where rank 0 listens, given its pod's name: a host name without the cluster's domain, and a port."""
    return f"{pod}.{service_name(job)}.{job.metadata.namespace}.svc", job.spec.rendezvous.port


@dataclass(frozen=True)
class Context:
    """Where the pods will run. The defaults are a cluster's; local mode passes its own.

    `delivery` is what `Auto` means; `Host`, where the tree is at `home` already, overrides what the job says.
    `token_file` maps an attempt to the file in which a trainer finds its token.
    """

    delivery: Delivery
    image: str
    pull_policy: PullPolicy = "IfNotPresent"
    home: str = HOME
    profiles: Mapping[str, HetPoolProfile] = field(default_factory=dict)
    address: Callable[[HetTrainingJob, str], tuple[str, int]] = cluster_address
    token_file: Callable[[int], str] = lambda _attempt: TOKEN_FILE
    report_port: int = REPORT_PORT
    report_poll_seconds: float = 5
    stuck_seconds: float = 60
    """How long after its grace period a Terminating pod of an old attempt holds the new one back."""

    def source(self, job: HetTrainingJob) -> Source:
        """Where the pods of a job get hetccl from."""
        asked = job.spec.hetccl.delivery
        delivery = self.delivery if asked == "Auto" or self.delivery == "Host" else asked
        return Source(delivery, job.spec.hetccl.image or self.image, self.pull_policy, self.home)
