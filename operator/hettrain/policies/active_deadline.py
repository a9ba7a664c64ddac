"""spec.activeDeadlineSeconds: how long a job may take, its restarts included."""

from datetime import datetime, timedelta

from hettrain.policies.verdicts import Finish
from hettrain.status.admission import waiting_since
from hettrain.status.times import parse_time
from hettrain.status.view import View

__all__ = ["active_deadline", "active_until"]


def active_until(view: View) -> datetime | None:
    """When the job's time is up. The clock starts anew when a suspended job resumes, rests while the gang waits in a
    queue, and stops when the job is over."""
    seconds, status = view.job.spec.active_deadline_seconds, view.status
    if seconds is None or status.start_time is None or status.completion_time is not None or waiting_since(view):
        return None
    return parse_time(status.start_time) + timedelta(seconds=seconds)


def active_deadline(view: View) -> Finish | None:
    """It comes before whatever would start the gang once more."""
    end = active_until(view)
    if end is None or view.now < end:
        return None
    allowed = f"activeDeadlineSeconds allows {view.job.spec.active_deadline_seconds} s"
    return Finish(
        "Failed",
        "DeadlineExceeded",
        f"the job was not done in time: it started at {view.status.start_time}, and {allowed}",
    )
