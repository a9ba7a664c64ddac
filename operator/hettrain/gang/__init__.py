"""Schedulers that take all pods of a job or none, one file each behind one interface: pure."""

from hettrain.api import HetTrainingJob
from hettrain.gang.kueue import KUEUE, queue_of
from hettrain.gang.scheduler import Group, Refused, Scheduler

__all__ = ["Group", "Refused", "Scheduler", "schedulers"]


def schedulers(job: HetTrainingJob) -> list[Scheduler]:
    """Those that a job asks for. Kueue says when a gang may start, a gang scheduler where: a job may have both."""
    return [KUEUE] if queue_of(job) is not None else []
