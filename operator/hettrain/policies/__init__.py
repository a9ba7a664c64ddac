"""What becomes of a job, one policy a file. The first that has an opinion decides; if none has, the job runs."""

from collections.abc import Callable

from hettrain.policies.disruption import disruption
from hettrain.policies.failure import failure
from hettrain.policies.settled import settled
from hettrain.policies.success import success
from hettrain.policies.suspend import suspend
from hettrain.policies.verdicts import Verdict
from hettrain.status.view import View

__all__ = ["POLICIES", "decide"]

POLICIES: tuple[Callable[[View], Verdict | None], ...] = (settled, success, suspend, disruption, failure)


def decide(view: View) -> Verdict | None:
    """The verdict of the first policy that has one."""
    return next((verdict for policy in POLICIES if (verdict := policy(view)) is not None), None)
