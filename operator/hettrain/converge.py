"""From the pods that are there to those that should be: the actions, and what the conditions say of them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from hettrain.actions import Action, AskQueue, AskReport, Create, CreateToken, Delete, Refusal, Try
from hettrain.api.job import KIND
from hettrain.events import Event, Reason
from hettrain.gang import queue_of
from hettrain.kube import kind_of
from hettrain.plan import CannotPlan, Context, groups, plan
from hettrain.plan.names import budget_name, config_name, reserve_name, service_name, token_name
from hettrain.plan.reserve import plan_reserve
from hettrain.policies.cleanup import useless
from hettrain.policies.elastic import shortfall
from hettrain.policies.eviction import stays_out
from hettrain.policies.verdicts import Finish, Remove, Requeue, Restart, Settled, Suspend, Verdict
from hettrain.status.admission import admitted, group_of, unmanaged, waiting_since, why_it_waits
from hettrain.status.blocked import Trouble, trouble
from hettrain.status.conditions import Claim
from hettrain.status.pods import Pod
from hettrain.status.preflight import judge_preflight
from hettrain.status.report import is_about, judge_report, shares
from hettrain.status.times import parse_time
from hettrain.status.view import View

__all__ = ["Seen", "Step", "converge"]

RETRY_SECONDS = 5.0
"""How soon a refused creation is tried again."""

FIRST_POLL_SECONDS, SLOWEST_POLL_SECONDS = 5.0, 300.0

OUT = "the job stays out of its queue until it is suspended and resumed, or the annotation hetccl.io/restart changes"
SHARES_POLL_SECONDS = 60.0

NOT_REPORTED: Claim = ("InjectionVerified", "Unknown", "NotReported", "rank 0 has not reported yet")


class Seen(Protocol):
    """What is known of the children besides the pods."""

    @property
    def services(self) -> frozenset[str]: ...
    @property
    def refusals(self) -> Sequence[Refusal]: ...
    @property
    def report(self) -> Mapping[str, Any] | None: ...
    @property
    def workload(self) -> Mapping[str, Any] | None: ...


@dataclass
class Step:
    """What to do now, what to say of it, and when to look again.

    `began`: nothing holds the attempt back any more. `ready`: all of its pods are ready or have succeeded.
    `shares`: each pool's part of a batch, where rank 0 said it.
    """

    actions: list[Action] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requeue_after: float | None = None
    began: bool = False
    ready: bool = False
    shares: dict[str, str] = field(default_factory=dict)

    def look_again(self, seconds: float) -> None:
        """The earliest wish counts."""
        wish = max(seconds, 0.0)
        self.requeue_after = wish if self.requeue_after is None else min(self.requeue_after, wish)


def converge(view: View, verdict: Verdict | None, seen: Seen, now: datetime, context: Context) -> Step:
    """One step towards what the verdict wants."""
    step = Step()
    match verdict:
        case Remove():
            step.actions.append(Delete(KIND, view.job.metadata.name, view.job.metadata.uid))
        case Settled():
            _delete(useless(view), step)
        case Finish(condition=condition, reason=reason, message=message):
            _delete(useless(view), step)
            step.actions += _disband(view, view.status.attempt)
            step.claims += [(condition, "True", reason, message), ("PodsReady", "False", condition, "")]
            _withdraw(view, step, ("Blocked", "Restarting"), condition)
        case Suspend():
            _clear(view, step)
            if view.old:
                step.actions += _disband(view, view.status.attempt - 1)
            step.claims += [
                ("Suspended", "True", "SuspendedByUser", "spec.suspend is true: the job has no pods"),
                ("PodsReady", "False", "Suspended", ""),
                NOT_REPORTED,
            ]
            _withdraw(view, step, ("Blocked", "Restarting"), "Suspended")
        case Requeue(reason=reason, message=message):
            step.claims += [("Suspended", "True", reason, message), NOT_REPORTED]
            _run(view, seen, now, context, step)
        case Restart(reason=reason, message=message):
            step.claims += [("Restarting", "True", reason, message), NOT_REPORTED]
            _run(view, seen, now, context, step)
        case None:
            _queue(view, seen, now, step)
            _run(view, seen, now, context, step)
    return step


def _delete(pods: Sequence[Pod], step: Step) -> None:
    step.actions += [Delete("Pod", pod.name, pod.uid) for pod in pods if pod.leaving is None]


def _clear(view: View, step: Step) -> None:
    """Remove what is left of earlier attempts. Kueue lets go of a group's last pods when its Workload is deleted."""
    kept = {pod.uid for pod in _reserve(view)}
    _delete([pod for pod in view.old if pod.uid not in kept], step)
    groups = sorted({group for pod in view.old if pod.held and (group := group_of(pod)) is not None})
    step.actions += [Delete("Workload", group) for group in groups]


def _reserve(view: View) -> list[Pod]:
    """The reserve pods that there should be, of those that there are."""
    found: list[Pod] = []
    for name, count in shortfall(view).items():
        found += [pod for pod in view.reserve if pod.pool == name][:count]
    return found


def _hold_places(view: View, context: Context, step: Step) -> None:
    """Create the reserve pods that are not there."""
    job, attempt = view.job, view.status.attempt
    there = {pod.name for pod in view.reserve}
    pools = {pool.name: pool for pool in job.spec.pools}
    for name, count in shortfall(view).items():
        for number in range(count):
            if reserve_name(job, attempt, name, number) not in there:
                step.actions.append(Create(plan_reserve(job, pools[name], attempt, number, context)))


def _queue(view: View, seen: Seen, now: datetime, step: Step) -> None:
    """What the condition Suspended says of a job that runs as far as its user is concerned."""
    if admitted(view):
        _withdraw(view, step, ("Suspended",), "Resumed" if queue_of(view.job) is None else "Admitted")
        return
    since = waiting_since(view)
    if (since is None and not view.current) or unmanaged(view) is not None:
        return
    waited = next((found for found in view.status.conditions if found.type == "Suspended" and since is not None), None)
    if waited is None or waited.reason in ("SuspendedByUser", "Queued"):
        reason, message = "Queued", why_it_waits(view, seen.workload)
    else:
        reason, first = waited.reason, waited.message.partition("\n")[0]
        message = f"{first}\n{OUT if stays_out(view) else why_it_waits(view, seen.workload)}"
    step.claims.append(("Suspended", "True", reason, message))
    group = next(map(group_of, view.current.values()), None)
    if group is not None:
        step.actions.append(AskQueue("Workload", group))
        waiting = (now - since).total_seconds() if since is not None else 0.0
        step.look_again(min(max(FIRST_POLL_SECONDS, waiting / 4), SLOWEST_POLL_SECONDS))


def _withdraw(view: View, step: Step, conditions: Sequence[str], reason: str) -> None:
    step.claims += [(kind, "False", reason, "") for kind in conditions if view.holds(kind)]


def _run(view: View, seen: Seen, now: datetime, context: Context, step: Step) -> None:
    _clear(view, step)
    if not any(condition.type == "InjectionVerified" for condition in view.status.conditions):
        step.claims.append(NOT_REPORTED)
    problem: Trouble | None = None
    waits = not admitted(view)
    may_start = True
    if service_name(view.job) not in seen.services or view.missing:
        may_start = _may_start(view, now, context, step) and not stays_out(view)
        if may_start:
            problem = _start(view, seen, context, step)
    elif view.holds("Restarting"):
        step.claims.append(("Restarting", "False", "Restarted", f"attempt {view.status.attempt} has all of its pods"))
    step.began = may_start and not waits
    problem = problem or (unmanaged(view) if waits else _first_trouble(view))
    if problem is not None:
        step.claims.append(("Blocked", "True", problem.reason, problem.message))
    else:
        _withdraw(view, step, ("Blocked",), "Started")
    if view.job.spec.hetccl.preflight != "Off" and context.delivery != "Host":
        step.claims.append(judge_preflight(view.members, view.current))
    everyone = len(view.members)
    step.ready = not view.unready
    if step.ready:
        step.claims.append(("PodsReady", "True", "AllPodsReady", f"all {everyone} pods are ready or have succeeded"))
        _listen(view, seen, now, context, step)
        _hold_places(view, context, step)
    else:
        step.claims.append(
            ("PodsReady", "False", "PodsStarting", f"{everyone - len(view.unready)} of {everyone} pods are ready")
        )


def _may_start(view: View, now: datetime, context: Context, step: Step) -> bool:
    """An attempt starts when its pause is over and the one before is gone, or has been stuck for too long."""
    start = view.status.next_restart_time
    pause = (parse_time(start) - now).total_seconds() if start else 0.0
    if pause > 0:
        step.look_again(pause)
    patience = timedelta(seconds=context.stuck_seconds)
    alive = [pod for pod in view.old if not pod.ended]
    stuck = [pod for pod in alive if pod.leaving is not None and pod.leaving + patience <= now]
    for pod in stuck:
        where = f" on node {pod.node}" if pod.node else ""
        step.events.append(
            Event(Reason.POD_STUCK, f"pod {pod.name}{where} does not go away: the next attempt starts beside it")
        )
    for pod in alive:
        if pod.leaving is not None and pod not in stuck:
            step.look_again((pod.leaving + patience - now).total_seconds())
    return pause <= 0 and len(stuck) == len(alive)


def _start(view: View, seen: Seen, context: Context, step: Step) -> Trouble | None:
    """Create what is missing; what others need first comes first."""
    job, attempt = view.job, view.status.attempt
    try:
        wanted = plan(job, attempt, view.missing, context)
    except CannotPlan as error:
        step.look_again(RETRY_SECONDS)
        return Trouble(error.reason, str(error))
    if service_name(job) not in seen.services:
        step.actions.append(Create(wanted.service))
    if wanted.pods:
        step.actions += _forget(view, attempt - 1)
        step.actions += [*map(Create, (*wanted.config_maps, *wanted.budgets)), CreateToken(wanted.token)]
        step.actions += [Create(each.manifest, each.remedy) for each in wanted.groups]
        if not view.current:
            step.actions += [Try(wanted.pods[0].manifest, each.field, each.remedy) for each in wanted.kept]
        step.actions += [Create(pod.manifest) for pod in wanted.pods]
        step.events += [Event(Reason.USER_SETTING, warning) for warning in wanted.warnings]
        if not view.current:
            pools = len(job.spec.pools)
            step.events.append(Event(Reason.STARTED, f"attempt {attempt}: {len(view.members)} pods in {pools} pools"))
    if not seen.refusals:
        return None
    step.look_again(RETRY_SECONDS)
    return Trouble(seen.refusals[0].reason, seen.refusals[0].message)


def _forget(view: View, attempt: int) -> list[Action]:
    """What the pods of an attempt that is over had in common."""
    if attempt < 0:
        return []
    maps = [config_name(view.job, attempt, pool.name) for pool in view.job.spec.pools]
    budgets = [budget_name(view.job, attempt)] if view.job.spec.disruption_budget == "Gang" else []
    return [
        Delete("Secret", token_name(view.job, attempt)),
        *(Delete("ConfigMap", name) for name in maps),
        *(Delete("PodDisruptionBudget", name) for name in budgets),
        *_disband(view, attempt),
    ]


def _disband(view: View, attempt: int) -> list[Action]:
    """Schedulers keep room for a group as long as it is there."""
    manifests = (each.manifest for each in groups(view.job, attempt))
    return [Delete(kind_of(manifest), manifest["metadata"]["name"]) for manifest in manifests]


def _first_trouble(view: View) -> Trouble | None:
    """Of a gang that is not placed, one pod has the reason; the others wait for it."""
    pods = (view.current.get(member.key) for member in view.members)
    found = [each for pod in pods if pod is not None and (each := trouble(pod)) is not None]
    return next((each for each in found if each.missing), found[0] if found else None)


def _listen(view: View, seen: Seen, now: datetime, context: Context, step: Step) -> None:
    """Rank 0 is asked until it reports every rank, ever more slowly: a program may never use hetccl at all.

    Where it balances the load it is asked on, for the shares.
    """
    job, attempt = view.job, view.status.attempt
    balanced = job.spec.balance.mode != "Off"
    report = seen.report
    verified = view.holds("InjectionVerified")
    if report is not None and is_about(report, f"{job.metadata.namespace}/{job.metadata.name}/{attempt}"):
        step.shares = shares(report)
        if not verified:
            claim = judge_report(job, report)
            step.claims.append(claim)
            verified = claim[1] == "True"
    first = view.current.get(view.members[0].key)
    if (verified and not balanced) or first is None or not first.ready or not first.address:
        return
    step.actions.append(AskReport(first.address, context.report_port, token_name(job, attempt)))
    ready = (c.last_transition_time for c in view.status.conditions if c.type == "PodsReady" and c.status == "True")
    waited = max(((now - parse_time(since)).total_seconds() for since in ready), default=0.0)
    slowest = SHARES_POLL_SECONDS if balanced else SLOWEST_POLL_SECONDS
    step.look_again(min(max(context.report_poll_seconds, waited / 4), slowest))
