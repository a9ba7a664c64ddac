"""spec.failurePolicy: what the failure of a pod means for the job."""

from datetime import UTC, datetime

from hettrain.api import FirstFailure
from hettrain.plan.ranks import Member
from hettrain.policies.verdicts import Finish, Restart
from hettrain.status.pods import Failure, Pod
from hettrain.status.view import View

__all__ = ["failure", "pause_seconds"]

TRACEBACK_LIMIT = 4096
NEVER = datetime.max.replace(tzinfo=UTC)


def failure(view: View) -> Finish | Restart | None:
    """The first failed pod ends the attempt: the others can only wait for it in vain."""
    ranks = {member.key: member for member in view.members}
    failed = [(pod.failure, pod, ranks[pod.key]) for pod in view.current.values() if pod.failure is not None]
    if not failed:
        return None
    first = _describe(view, *min(failed, key=lambda f: (f[0].finished or NEVER, f[2].node_rank)))
    limit = view.job.spec.failure_policy.max_restarts
    if view.status.restarts >= limit:
        spent = f" after {view.status.restarts} of {limit} restarts" if limit else ""
        return Finish("Failed", "PodFailed", f"{_sentence(first)}{spent}", first)
    return Restart("PodFailed", f"{_sentence(first)} (restart {view.status.restarts + 1} of {limit})", True, first)


def pause_seconds(view: View) -> int:
    """The pause before the next counted restart."""
    backoff = view.job.spec.failure_policy.backoff
    # Doubling stops mattering long before a number of this size does.
    return min(backoff.initial_seconds << min(view.status.restarts, 32), backoff.max_seconds)


def _describe(view: View, failure: Failure, pod: Pod, member: Member) -> FirstFailure:
    return FirstFailure(
        attempt=view.status.attempt,
        pod=pod.name,
        pool=pod.pool,
        rank=member.first_rank,
        node=pod.node,
        exit_code=failure.exit_code,
        reason=failure.reason,
        traceback=failure.message[-TRACEBACK_LIMIT:],
    )


def _sentence(first: FirstFailure) -> str:
    code = f", exit code {first.exit_code}" if first.exit_code is not None else ""
    node = f" on node {first.node}" if first.node else ""
    return f"pod {first.pod} (pool {first.pool}, rank {first.rank}{node}) failed: {first.reason}{code}"
