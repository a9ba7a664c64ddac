"""The one place that decides: a job and its children, now, to what is to be done. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hettrain.actions import Action, Refusal
from hettrain.api import HetTrainingJob, JobStatus
from hettrain.api.job import MANAGER
from hettrain.api.status import Summary
from hettrain.converge import Step, converge
from hettrain.events import Event, Reason, event_of_failure, events_of_change
from hettrain.plan import Context, world_size
from hettrain.plan.names import JOB_LABEL
from hettrain.plan.ranks import sizes
from hettrain.policies import decide, next_alarm
from hettrain.policies.failure import pause_seconds
from hettrain.policies.restart import request
from hettrain.policies.verdicts import Finish, Remove, Requeue, Restart, Settled, Suspend, Verdict
from hettrain.status.admission import admitted, waiting_since
from hettrain.status.conditions import merge_conditions, state_of
from hettrain.status.pods import observe
from hettrain.status.preflight import bad_nodes
from hettrain.status.times import parse_time, write_time
from hettrain.status.view import View

__all__ = ["Children", "Outcome", "reconcile"]

NOTHING_SEEN: dict[str, Any] = {"pools": [], "sizes": {}, "attempt_start_time": None, "ready_time": None}
"""What a status says of an attempt that has not started."""


@dataclass(frozen=True)
class Children:
    """What is there of a job. Pods are as the API server shows them; of `services` the names are enough.

    `refusals`: creations that were refused the last time they were tried. `report`: rank 0's last answer. `workload`:
    what Kueue last said of the group that waits.
    """

    pods: Sequence[Mapping[str, Any]] = ()
    services: frozenset[str] = frozenset()
    refusals: Sequence[Refusal] = ()
    report: Mapping[str, Any] | None = None
    workload: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """What to do, in this order: write the status, carry out the actions one by one, publish the events.

    `requeue_after` is in seconds; None: nothing changes until a child or the job does.
    """

    status: JobStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None


def reconcile(job: HetTrainingJob, children: Children, now: datetime, context: Context) -> Outcome:
    """Decide. Called again with what came of it, it goes on from there; called twice, it asks for the same twice."""
    if job.spec.managed_by not in (None, MANAGER) or job.metadata.deletion_timestamp is not None:
        return Outcome(job.status)
    pods = [observe(pod) for pod in children.pods]
    before = View(_sized(job, job.status), pods, now)
    verdict = decide(before)
    status, events = _turn(before, verdict, now)
    view = View(_sized(job, status), pods, now)
    step = converge(view, verdict, children, now, context)
    alarm = next_alarm(view)
    if alarm is not None:
        step.look_again((alarm - now).total_seconds())
    status = _report(view, step, now)
    events += [*step.events, *events_of_change(job.status.conditions, status.conditions)]
    return Outcome(status, tuple(step.actions), tuple(events), step.requeue_after)


def _sized(job: HetTrainingJob, status: JobStatus) -> HetTrainingJob:
    """The job with a status; an elastic one with the sizes of its attempt, decided when it begins."""
    if job.spec.elastic is not None and not status.sizes:
        status = status.model_copy(update={"sizes": sizes(job.model_copy(update={"status": status}))})
    return job.model_copy(update={"status": status})


def _turn(view: View, verdict: Verdict | None, now: datetime) -> tuple[JobStatus, list[Event]]:
    """The status that a verdict leads to. A new attempt starts with nothing seen and nothing completed."""
    status = view.status
    match verdict:
        case Settled() | Remove():
            return status, []
        case Suspend():
            # A number is used once: pods of a suspended attempt may still be leaving when the job resumes.
            attempt = status.attempt + 1 if view.current or view.was_whole else status.attempt
            fresh: dict[str, Any] = {
                "attempt": attempt,
                "start_time": None,
                "next_restart_time": None,
                "caps": {},
                "avoided_nodes": [],
            }
            return status.model_copy(update=NOTHING_SEEN | fresh), []
        case Requeue():
            fresh = {"attempt": status.attempt + 1, "start_time": None, "next_restart_time": None}
            return status.model_copy(update=NOTHING_SEEN | fresh), []
        case Restart(reason=reason, message=message, counter=counter, failure=failure, event=told, caps=caps):
            pause = pause_seconds(view) if counter else 0
            update: dict[str, Any] = NOTHING_SEEN | {
                "attempt": status.attempt + 1,
                "next_restart_time": write_time(now + timedelta(seconds=pause)) if pause else None,
                "first_failure": failure or status.first_failure,
                "restart_request": request(view.job),
            }
            if caps is not None:
                update["caps"] = dict(caps)
            bad = bad_nodes(list(view.current.values()))
            if view.job.spec.hetccl.preflight == "Fail" and bad:
                update["avoided_nodes"] = sorted({*status.avoided_nodes, *bad})
            elif told is Reason.RESTART_REQUESTED:
                update["avoided_nodes"] = []
            if counter is not None:
                update[counter] = getattr(status, counter) + 1
            events = [event_of_failure(failure)] if failure else []
            return status.model_copy(update=update), [*events, Event(told, f"{reason}: {message}")]
        case Finish(failure=failure):
            update = {"completion_time": write_time(now), "first_failure": failure or status.first_failure}
            return status.model_copy(update=update), [event_of_failure(failure)] if failure else []
        case None:
            if not admitted(view):
                return status, []
            if status.start_time is None:
                begun = {"start_time": write_time(now), "restart_request": request(view.job)}
                return status.model_copy(update=begun), []
            waited = waiting_since(view)
            if waited is None:
                return status, []
            # Time in a queue is nobody's fault: the deadline of the whole job moves on by it.
            start = parse_time(status.start_time) + (now - waited)
            return status.model_copy(update={"start_time": write_time(start)}), []


def _report(view: View, step: Step, now: datetime) -> JobStatus:
    generation = view.job.metadata.generation
    conditions = merge_conditions(view.status.conditions, step.claims, now, generation)
    before = {pool.name: pool.share for pool in view.status.pools}
    pools = [
        pool.model_copy(update={"share": step.shares.get(pool.name, before.get(pool.name, ""))})
        for pool in view.counts()
    ]
    there_are = " ".join(f"{name}:{size}" for name, size in sizes(view.job).items())
    there = sum(pool.ready + pool.succeeded for pool in pools)
    return view.status.model_copy(
        update={
            "conditions": conditions,
            "state": state_of(conditions),
            "observed_generation": generation,
            "pools": pools,
            "attempt_start_time": view.status.attempt_start_time or (write_time(now) if step.began else None),
            "ready_time": view.status.ready_time or (write_time(now) if step.ready else None),
            "replicas": len(view.members),
            "selector": f"{JOB_LABEL}={view.job.metadata.name}",
            "world_size": world_size(view.job),
            "summary": Summary(pools=there_are, ready=f"{there}/{len(view.members)}"),
        }
    )
