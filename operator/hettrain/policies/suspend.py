"""spec.suspend."""

from hettrain.policies.verdicts import Suspend
from hettrain.status.view import View

__all__ = ["suspend"]


def suspend(view: View) -> Suspend | None:
    """A suspended job has no pods."""
    return Suspend() if view.job.spec.suspend else None
