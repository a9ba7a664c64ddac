"""`hettrain wait`: for scripts, which read its exit code."""

import argparse
import sys
from typing import Literal, get_args

from hettrain.commands.base import DONE, FAILED, TIMED_OUT, add_job, duration
from hettrain.commands.cluster import Object, connect

__all__ = ["Goal", "add", "judge"]

Goal = Literal["complete", "failed", "running"]

OPPOSITES: dict[Goal, tuple[set[str], set[str]]] = {
    "complete": ({"Complete"}, {"Failed"}),
    "failed": ({"Failed"}, {"Complete"}),
    # A short job may have run and ended between two looks.
    "running": ({"Running", "Complete"}, {"Failed"}),
}
"""The states that are what is waited for, and those after which it cannot come any more."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    parser.add_argument(
        "--for",
        dest="goal",
        choices=get_args(Goal),
        default="complete",
        help="what to wait for; running: every pod is ready, or the job is complete already (default: complete)",
    )
    parser.add_argument(
        "--timeout", metavar="TIME", type=duration, default="1h", help="90s, 10m, 1h30m, 7d; 0 looks once (default: 1h)"
    )
    parser.set_defaults(run=_run)


def judge(goal: Goal, job: Object) -> bool | None:
    """Whether a job has reached the goal; None while it still may. A status older than the spec says nothing yet."""
    status = job.get("status", {})
    if status.get("observedGeneration", 0) < job["metadata"]["generation"]:
        return None
    reached, lost = OPPOSITES[goal]
    state = status.get("state")
    return True if state in reached else False if state in lost else None


def _run(options: argparse.Namespace) -> int:
    state = "Pending"
    for job in connect(options).follow(options.name, options.timeout):
        if job is None:
            print(f"{options.name}: was deleted, so that it cannot be {options.goal}", file=sys.stderr)
            return FAILED
        state = job.get("status", {}).get("state") or state
        verdict = judge(options.goal, job)
        if verdict:
            print(f"{options.name}: {state}")
            return DONE
        if verdict is False:
            print(f"{options.name}: {state}, so that it cannot be {options.goal}{_why(job)}", file=sys.stderr)
            return FAILED
    print(f"{options.name}: {state}, not {options.goal} within {options.timeout} s", file=sys.stderr)
    return TIMED_OUT


def _why(job: Object) -> str:
    failed = [c for c in job["status"].get("conditions", ()) if c["type"] == "Failed" and c["status"] == "True"]
    return f": {failed[0]['message']}" if failed else ""
