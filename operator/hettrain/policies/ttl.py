"""spec.ttlSecondsAfterFinished: how long a job that is over stays."""

from datetime import datetime, timedelta

from hettrain.policies.verdicts import Remove
from hettrain.status.times import parse_time
from hettrain.status.view import View

__all__ = ["expires", "ttl"]


def expires(view: View) -> datetime | None:
    """When the job may go. It has a completion time once it is Complete or Failed."""
    seconds, end = view.job.spec.ttl_seconds_after_finished, view.status.completion_time
    return None if seconds is None or end is None else parse_time(end) + timedelta(seconds=seconds)


def ttl(view: View) -> Remove | None:
    """Only a job whose end has been written down goes: somebody may wait for it."""
    end = expires(view)
    return Remove() if end is not None and view.now >= end else None
