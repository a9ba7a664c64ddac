"""spec.failurePolicy: what the failure of a pod means for the job."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from hettrain.api import FirstFailure
from hettrain.api.policies import OOM_KILLED, FailureRule
from hettrain.plan.ranks import Member
from hettrain.policies.verdicts import Finish, Restart
from hettrain.status.pods import Failure, Pod
from hettrain.status.view import View

__all__ = ["failure", "judge", "pause_seconds"]

TRACEBACK_LIMIT = 4096
NEVER = datetime.max.replace(tzinfo=UTC)


def failure(view: View) -> Finish | Restart | None:
    """The first failed pod ends the attempt: the others can only wait for it in vain."""
    first = list(_first(view))
    return judge(view, first) if first else None


def judge(view: View, failures: Sequence[FirstFailure]) -> Finish | Restart:
    """What failures mean that came at the same time: the first rule that knows one of them decides, else the budget."""
    policy = view.job.spec.failure_policy
    for number, rule in enumerate(policy.failure_rules):
        for found in failures:
            if _matches(rule, found):
                return _act(view, found, rule.action, f", which failurePolicy.rules[{number}] is for")
    return _act(view, failures[0], "Restart", "")


def pause_seconds(view: View) -> int:
    """The pause before the next restart after a failure."""
    backoff = view.job.spec.failure_policy.backoff
    # Doubling stops mattering long before a number of this size does.
    earlier = min(view.status.restarts + view.status.ignored_restarts, 32)
    return min(backoff.initial_seconds << earlier, backoff.max_seconds)


def _first(view: View) -> Iterator[FirstFailure]:
    """The failures of the earliest second, by rank: kubelets tell times in whole seconds."""
    ranks = {member.key: member for member in view.members}
    failed = [(pod.failure, pod, ranks[pod.key]) for pod in view.current.values() if pod.failure is not None]
    earliest = min((found.finished or NEVER for found, _, _ in failed), default=NEVER)
    for found, pod, member in sorted(failed, key=lambda each: each[2].node_rank):
        if (found.finished or NEVER) == earliest:
            yield _describe(view, found, pod, member)


def _matches(rule: FailureRule, failure: FirstFailure) -> bool:
    if rule.pools and failure.pool not in rule.pools:
        return False
    if rule.on_reasons and failure.reason not in rule.on_reasons:
        return False
    if failure.reason == OOM_KILLED:
        # Its exit code is that of any SIGKILL and says nothing; and it would only come back, again and again.
        return rule.on_exit_codes is None and rule.action != "RestartIgnoreLimit"
    codes = rule.on_exit_codes
    return codes is None or (
        failure.exit_code is not None and (failure.exit_code in codes.values) == (codes.operator == "In")
    )


def _act(view: View, failure: FirstFailure, action: str, why: str) -> Finish | Restart:
    said = _sentence(failure)
    restarts, limit = view.status.restarts, view.job.spec.failure_policy.max_restarts
    if action == "Fail":
        return Finish("Failed", "FailurePolicy", f"{said}{why}", failure)
    if action == "RestartIgnoreLimit":
        return Restart("PodFailed", f"{said}{why} (not counted)", "ignored_restarts", failure)
    if restarts >= limit:
        spent = f" after {restarts} of {limit} restarts" if limit else ""
        return Finish("Failed", "PodFailed", f"{said}{spent}", failure)
    return Restart("PodFailed", f"{said} (restart {restarts + 1} of {limit})", "restarts", failure)


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
