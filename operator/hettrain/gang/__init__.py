"""Schedulers that take all pods of a job or none, one file each behind one interface: pure."""

from hettrain.api import HetTrainingJob
from hettrain.gang.coscheduling import COSCHEDULING
from hettrain.gang.kubernetes import KUBERNETES
from hettrain.gang.kueue import KUEUE, queue_of
from hettrain.gang.scheduler import Group, Refused, Scheduler
from hettrain.gang.volcano import VOLCANO

__all__ = ["Group", "Refused", "Scheduler", "queue_of", "schedulers"]

GANGS: dict[str, Scheduler] = {"Kubernetes": KUBERNETES, "Volcano": VOLCANO, "Coscheduling": COSCHEDULING}


def schedulers(job: HetTrainingJob) -> list[Scheduler]:
    """Those that a job asks for. Kueue says when a gang may start, the others where: a job may have both."""
    gang = GANGS.get(job.spec.scheduling.gang)
    return [*([KUEUE] if queue_of(job) is not None else []), *([gang] if gang else [])]
