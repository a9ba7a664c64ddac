"""spec.failurePolicy: what the failure of a pod means for the job."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from hettrain.api import FirstFailure
from hettrain.api.policies import OOM_KILLED, FailureRule
from hettrain.plan.ranks import Member
from hettrain.policies.verdicts import Finish, Restart
from hettrain.status.failures import readable, sentence
from hettrain.status.pods import Failure, Pod
from hettrain.status.view import View

__all__ = ["failure", "failure_known", "judge", "pause_seconds"]

TRACEBACK_LIMIT = 4096

SETTLES = timedelta(seconds=3)
"""How long after a failure the cause of it may still become known: a rank that fails takes its peers with it within
moments, and kubelets report in no order."""

SAME_MOMENT = timedelta(seconds=1)
"""Kubelets tell times in whole seconds, and each by its own clock."""

SIGNALLED = 128
BLAMES_ANOTHER = "hetccl.errors.CollectiveError"
"""The last words of a rank that ended because another one did."""


def failure(view: View) -> Finish | Restart | None:
    """The first failed pod ends the attempt: the others can only wait for it in vain."""
    known = failure_known(view)
    if known is not None and known > view.now:
        return None
    first = [(found, sentence(found)) for found in _first(view)]
    return judge(view, first, "PodFailed") if first else None


def failure_known(view: View) -> datetime | None:
    """When it will be known which pod failed first; None: it is known by now, or no pod has failed."""
    ends = [pod.failure.finished for pod in view.current.values() if pod.failure is not None]
    times = [end for end in ends if end is not None]
    # A clock that runs ahead must not make the job wait.
    if len(ends) in (0, len(view.members)) or len(times) < len(ends) or min(times) > view.now + SETTLES:
        return None
    return min(times) + SETTLES


def judge(view: View, failures: Sequence[tuple[FirstFailure, str]], reason: str) -> Finish | Restart:
    """What failures mean that came at the same time, each with what is to be said of it.

    The first rule that knows one of them decides, else the budget does. `reason` is a condition's.
    """
    for number, rule in enumerate(view.job.spec.failure_policy.failure_rules):
        for found, said in failures:
            if _matches(rule, found):
                return _act(view, rule.action, reason, f"{said} (failurePolicy.rules[{number}]: {rule.action})", found)
    found, said = failures[0]
    return _act(view, "Restart", reason, said, found)


def pause_seconds(view: View) -> int:
    """The pause before the next restart after a failure."""
    backoff = view.job.spec.failure_policy.backoff
    # Doubling stops mattering long before a number of this size does.
    earlier = min(view.status.restarts + view.status.ignored_restarts, 32)
    return min(backoff.initial_seconds << earlier, backoff.max_seconds)


def _first(view: View) -> Iterator[FirstFailure]:
    """The failures that may have come first, by rank: the likeliest causes among those of the same moment."""
    ranks = {member.key: member for member in view.members}
    failed = [(pod.failure, pod, ranks[pod.key]) for pod in view.current.values() if pod.failure is not None]
    earliest = min((found.finished for found, _, _ in failed if found.finished), default=None)
    if earliest is not None:
        failed = [
            (found, pod, member)
            for found, pod, member in failed
            if found.finished is not None
            and found.finished - earliest <= (SAME_MOMENT if _doubt(found) == 0 else timedelta())
        ]
    likeliest = min((_doubt(found) for found, _, _ in failed), default=0)
    for found, pod, member in sorted(failed, key=lambda each: each[2].node_rank):
        if _doubt(found) == likeliest:
            yield _describe(view, found, pod, member)


def _doubt(failure: Failure) -> int:
    """How doubtful it is that a failure is a cause: a rank that has only lost a peer ends by itself, and says so."""
    if failure.reason != "Error" or (failure.exit_code or 0) > SIGNALLED:
        return 0
    return 2 if BLAMES_ANOTHER in failure.message else 1


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


def _act(view: View, action: str, reason: str, said: str, failure: FirstFailure) -> Finish | Restart:
    restarts, limit = view.status.restarts, view.job.spec.failure_policy.max_restarts
    if action == "Fail":
        return Finish("Failed", "FailurePolicy", said, failure)
    if action == "RestartIgnoreLimit":
        return Restart(reason, said, "ignored_restarts", failure)
    if restarts >= limit:
        spent = f" after {restarts} of {limit} restarts" if limit else ""
        return Finish("Failed", reason, f"{said}{spent}", failure)
    return Restart(reason, f"{said} (restart {restarts + 1} of {limit})", "restarts", failure)


def _describe(view: View, failure: Failure, pod: Pod, member: Member) -> FirstFailure:
    return FirstFailure(
        attempt=view.status.attempt,
        pod=pod.name,
        pool=pod.pool,
        rank=member.first_rank,
        node=pod.node,
        exit_code=failure.exit_code,
        reason=failure.reason,
        traceback=readable(failure.message)[-TRACEBACK_LIMIT:],
    )
