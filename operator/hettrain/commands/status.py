"""`hettrain status`."""

import argparse
import itertools
import math
from collections.abc import Sequence
from typing import Any

from hettrain.api import HetTrainingJob, InvalidDocument, load
from hettrain.api.job import MANAGER
from hettrain.commands.base import DONE, CommandError, add_job, add_output
from hettrain.commands.cluster import Cluster, Object, connect
from hettrain.commands.screen import Block, Columns, Lines, Screen, age, colours
from hettrain.plan import members, processes_per_pod
from hettrain.status.indexes import parse_indexes
from hettrain.status.pods import Pod, observe

__all__ = ["add", "blocks", "describe"]

OVER = ("Complete", "Failed")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    add_output(parser, "show it anew after every change, until the job is over")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    cluster, screen = connect(options), Screen(options.output)
    if not options.watch:
        _show(cluster, screen, cluster.job(options.name))
        return DONE
    with screen.redrawn():
        for job in cluster.follow(options.name, math.inf):
            if job is None:
                screen.note(f"{options.name} was deleted")
                break
            _show(cluster, screen, job)
            if job.get("status", {}).get("state") in OVER:
                break
    return DONE


def _show(cluster: Cluster, screen: Screen, found: Object) -> None:
    name = found["metadata"]["name"]
    try:
        job = load(found)
    except InvalidDocument as error:
        raise CommandError(f"this hettrain cannot read {name}: is the cluster's newer?\n{error}") from None
    pods = [observe(pod) for pod in cluster.pods(name, job.status.attempt)]
    document = describe(job, pods)
    screen.show(document, blocks(document))


def describe(job: HetTrainingJob, pods: Sequence[Pod]) -> dict[str, Any]:
    """What a script may want to know of a job: a plain document, the source of the tables too."""
    status, spec = job.status, job.spec
    counts = {pool.name: pool.dump() for pool in status.pools}
    return {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "state": status.state or "Pending",
        "managedBy": spec.managed_by or MANAGER,
        "attempt": status.attempt,
        "restarts": status.restarts,
        "maxRestarts": spec.failure_policy.max_restarts,
        "worldSize": status.world_size,
        "startTime": status.start_time,
        "nextRestartTime": status.next_restart_time,
        "completionTime": status.completion_time,
        "conditions": [condition.dump() for condition in status.conditions],
        "pools": [
            {"vendor": pool.vendor, "replicas": pool.replicas}
            | {"active": 0, "ready": 0, "succeeded": 0, "failed": 0}
            | counts.get(pool.name, {"name": pool.name})
            for pool in spec.pools
        ],
        "ranks": _ranks(job, pods),
        "firstFailure": status.first_failure.dump() if status.first_failure else None,
    }


def _ranks(job: HetTrainingJob, pods: Sequence[Pod]) -> list[dict[str, Any]]:
    found = {pod.key: pod for pod in pods}
    done = {pool.name: parse_indexes(pool.completed_indexes) for pool in job.status.pools}
    ranks = []
    for member in members(job):
        pod = found.get(member.key)
        state = "succeeded" if member.index in done.get(member.pool.name, ()) else "none"
        if pod is not None:
            state = "terminating" if pod.leaving and not pod.ended else pod.phase.value
        for local in range(processes_per_pod(member.pool)):
            ranks.append(
                {
                    "rank": member.first_rank + local,
                    "pool": member.pool.name,
                    "vendor": member.pool.vendor,
                    "replica": member.index,
                    "pod": pod.name if pod else None,
                    "node": (pod.node or None) if pod else None,
                    "state": state,
                }
            )
    return ranks


def blocks(job: dict[str, Any]) -> list[Block]:
    """The document of `describe` for a reader."""
    colour = colours(pool["name"] for pool in job["pools"])
    shown: list[Block] = [Lines(_head(job), "bold")]
    shown.append(
        Columns(
            ("POOL", "VENDOR", "PODS", "ACTIVE", "READY", "SUCCEEDED", "FAILED"),
            [
                [str(pool[k]) for k in ("name", "vendor", "replicas", "active", "ready", "succeeded", "failed")]
                for pool in job["pools"]
            ],
            [colour[pool["name"]] for pool in job["pools"]],
        )
    )
    if job["conditions"]:
        rows = [
            [c["type"], c["status"], c["reason"], age(c["lastTransitionTime"]), c["message"]] for c in job["conditions"]
        ]
        shown.append(Columns(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows))
    # One row a pod: its processes share all but the rank.
    pods = [list(group) for _, group in itertools.groupby(job["ranks"], lambda rank: (rank["pool"], rank["replica"]))]
    shown.append(
        Columns(
            ("RANK", "POOL", "VENDOR", "POD", "NODE", "STATE"),
            [
                [_range(ranks), *(ranks[0][k] or "-" for k in ("pool", "vendor", "pod", "node", "state"))]
                for ranks in pods
            ],
            [colour[ranks[0]["pool"]] for ranks in pods],
        )
    )
    if job["firstFailure"]:
        shown.append(Lines(_failure(job["firstFailure"]), "red"))
    return shown


def _head(job: dict[str, Any]) -> list[str]:
    lines = [
        f"{job['namespace']}/{job['name']}: {job['state']}",
        f"attempt {job['attempt']}, {job['restarts']} of {job['maxRestarts']} restarts, {job['worldSize']} ranks, "
        f"started {_ago(job['startTime'])}",
    ]
    if job["nextRestartTime"] and job["state"] == "Restarting":
        lines.append(f"the next attempt starts no earlier than {job['nextRestartTime']}")
    if job["completionTime"]:
        lines.append(f"ended {_ago(job['completionTime'])}")
    if job["managedBy"] != MANAGER:
        lines.append(f"managed by {job['managedBy']}, not by this operator")
    return lines


def _ago(time: str | None) -> str:
    return f"{age(time)} ago" if time else "not yet"


def _range(ranks: Sequence[dict[str, Any]]) -> str:
    first, last = ranks[0]["rank"], ranks[-1]["rank"]
    return str(first) if first == last else f"{first}-{last}"


def _failure(failure: dict[str, Any]) -> list[str]:
    code = f", exit code {failure['exitCode']}" if failure.get("exitCode") is not None else ""
    node = f" on node {failure['node']}" if failure.get("node") else ""
    said = failure.get("traceback", "").rstrip("\n")
    return [
        f"first failure: attempt {failure['attempt']}, pod {failure['pod']} (pool {failure['pool']}, "
        f"rank {failure['rank']}{node}): {failure.get('reason') or 'Error'}{code}",
        *(f"    {line}" for line in said.splitlines()),
    ]
