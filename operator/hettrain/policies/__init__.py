"""What becomes of a job, one policy a file. The first that has an opinion decides; if none has, the job runs."""

from collections.abc import Callable
from datetime import datetime

from hettrain.policies.active_deadline import active_deadline, active_until
from hettrain.policies.disruption import disruption
from hettrain.policies.elastic import elastic, elastic_until
from hettrain.policies.eviction import eviction
from hettrain.policies.failure import failure, failure_known
from hettrain.policies.restart import restart
from hettrain.policies.settled import settled
from hettrain.policies.startup_deadline import startup_deadline, startup_until
from hettrain.policies.success import success
from hettrain.policies.suspend import suspend
from hettrain.policies.ttl import expires, ttl
from hettrain.policies.verdicts import Verdict
from hettrain.status.view import View

__all__ = ["ALARMS", "POLICIES", "decide", "next_alarm"]

POLICIES: tuple[Callable[[View], Verdict | None], ...] = (
    ttl,
    settled,
    success,
    suspend,
    restart,
    active_deadline,
    eviction,
    disruption,
    failure,
    elastic,
    startup_deadline,
)

ALARMS: tuple[Callable[[View], datetime | None], ...] = (
    active_until,
    startup_until,
    expires,
    failure_known,
    elastic_until,
)
"""When time alone changes what a policy says."""


def decide(view: View) -> Verdict | None:
    """The verdict of the first policy that has one."""
    return next((verdict for policy in POLICIES if (verdict := policy(view)) is not None), None)


def next_alarm(view: View) -> datetime | None:
    """When to decide anew though nothing has happened."""
    return min((at for alarm in ALARMS if (at := alarm(view)) is not None and at > view.now), default=None)
