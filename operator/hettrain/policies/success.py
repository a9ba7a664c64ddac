"""When a job has succeeded."""

from hettrain.policies.verdicts import Finish
from hettrain.status.view import View

__all__ = ["success"]


def success(view: View) -> Finish | None:
    """Every pod's trainer ended with 0, whether or not the pod is still there to say so."""
    if any(member.index not in view.completed[member.pool.name] for member in view.members):
        return None
    return Finish("Complete", "AllPodsSucceeded", f"all {len(view.members)} pods succeeded")
