"""A restart by hand: the annotation hetccl.io/restart with a value that it did not have before."""

from hettrain.api import HetTrainingJob
from hettrain.api.job import RESTART_ANNOTATION
from hettrain.events import Reason
from hettrain.policies.verdicts import Restart
from hettrain.status.view import View

__all__ = ["request", "restart"]

REQUEST_LIMIT = 256
"""An annotation may be as long as all of an object; what has to be remembered of it may not."""


def request(job: HetTrainingJob) -> str | None:
    """What the annotation says now."""
    value = job.metadata.annotations.get(RESTART_ANNOTATION)
    return value[:REQUEST_LIMIT] if value else None


def restart(view: View) -> Restart | None:
    """Nobody is blamed and no pause is kept. A job that has not started, or is suspended, starts anew anyway."""
    asked = request(view.job)
    if asked is None or asked == view.status.restart_request or view.status.start_time is None:
        return None
    return Restart(
        "RestartRequested", f"the annotation {RESTART_ANNOTATION} is {asked}", event=Reason.RESTART_REQUESTED, caps={}
    )
