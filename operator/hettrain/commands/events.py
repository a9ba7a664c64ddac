"""`hettrain events`: what happened to a job and to its pods, in one list."""

import argparse
import re
import time
from collections.abc import Sequence
from typing import Any

from hettrain.commands.base import DONE, add_job, add_output
from hettrain.commands.cluster import Cluster, Object, connect
from hettrain.commands.screen import Columns, Screen
from hettrain.status.times import parse_time

__all__ = ["add", "describe", "table"]

INTERVAL = 2.0
"""Seconds between two looks of --watch: an event that is repeated changes, and a list shows it once."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    add_output(parser, "go on with new ones as they come")
    parser.add_argument("--warnings", action="store_true", help="only what is a warning")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    cluster, screen = connect(options), Screen(options.output)
    job = cluster.job(options.name)
    seen: set[tuple[Any, ...]] = set()
    while True:
        found = [event for event in _events(cluster, job) if not options.warnings or event["type"] == "Warning"]
        fresh = [event for event in found if tuple(event.values()) not in seen]
        if fresh:
            screen.show(fresh, [table(fresh, head=not seen)])
            seen |= {tuple(event.values()) for event in fresh}
        if not options.watch:
            break
        time.sleep(INTERVAL)
    if not seen:
        screen.show([], [])
        screen.note(f"{options.name} has no events: the API server keeps them for an hour")
    return DONE


def _events(cluster: Cluster, job: Object) -> list[dict[str, Any]]:
    name = job["metadata"]["name"]
    return describe(job, [*cluster.events("HetTrainingJob", name), *cluster.events("Pod")])


def describe(job: Object, events: Sequence[Object]) -> list[dict[str, Any]]:
    """The events of a job and of the pods of any of its attempts, the oldest first."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    pools = "|".join(re.escape(pool["name"]) for pool in job["spec"]["pools"])
    pod = re.compile(rf"{re.escape(name)}-\d+-({pools})-\d{{4,}}")
    created = parse_time(job["metadata"]["creationTimestamp"])
    result = []
    for event in events:
        about = event["involvedObject"]
        when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
        # Pods of earlier attempts are gone, so they are known by name; an earlier job may have had the same one.
        if about["kind"] == "Pod":
            ours = pod.fullmatch(about["name"]) is not None and parse_time(when) >= created
        else:
            ours = about.get("uid") == uid
        if ours:
            result.append(
                {
                    "time": when,
                    "type": event.get("type", "Normal"),
                    "reason": event.get("reason", ""),
                    "object": "job" if about["kind"] != "Pod" else about["name"],
                    "count": event.get("count") or 1,
                    "message": event.get("message", ""),
                }
            )
    return sorted(result, key=lambda event: parse_time(event["time"]))


def table(events: Sequence[dict[str, Any]], head: bool = True) -> Columns:
    """The same for a reader."""
    names = ("TIME", "TYPE", "REASON", "OBJECT", "MESSAGE")
    rows = []
    for event in events:
        times = f" ({event['count']} times)" if event["count"] > 1 else ""
        rows.append([event["time"], event["type"], event["reason"], event["object"], event["message"] + times])
    styles = ["yellow" if event["type"] == "Warning" else "" for event in events]
    return Columns(names if head else (), rows, styles)
