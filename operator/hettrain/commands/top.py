"""`hettrain top`: who has which GPUs, and what CPU and memory the pods use."""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hettrain.commands.base import DONE, WRONG_INPUT, CommandError, add_output, add_target
from hettrain.commands.cluster import Cluster, Object, connect
from hettrain.commands.screen import Columns, Screen, age, colours
from hettrain.plan.names import JOB_LABEL
from hettrain.status.pods import observe

__all__ = ["add", "quantity"]

INTERVAL = 5.0
"""Seconds between two looks of --watch; a metrics server measures more rarely."""

UNITS = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
UNITS |= {unit: Decimal(1000) ** power for power, unit in enumerate(["k", "M", "G", "T", "P", "E"], 1)}
UNITS |= {unit: Decimal(1024) ** power for power, unit in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], 1)}
NO_METRICS = "CPU and memory are not shown: the cluster has no metrics server (metrics.k8s.io)"

Usage = dict[tuple[str, str], tuple[Decimal, Decimal]]
"""Cores and bytes by namespace and pod."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a HetTrainingJob, pod by pod; default: every job")
    add_target(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="jobs of every namespace")
    add_output(parser, "look again every 5 seconds, until interrupted")
    parser.set_defaults(run=_run)


def quantity(text: str) -> Decimal:
    """A quantity as Kubernetes writes it: 250m, 1Gi, 1500000n."""
    number = text.rstrip("numkMGTPEi")
    return Decimal(number) * UNITS[text[len(number) :]]


def _run(options: argparse.Namespace) -> int:
    if options.name and options.all_namespaces:
        raise CommandError("a job has one namespace: leave out NAME or --all-namespaces", WRONG_INPUT)
    cluster, screen = connect(options), Screen(options.output)
    with screen.redrawn():
        while True:
            measured = cluster.usage(options.name, options.all_namespaces)
            if options.name:
                document, table = _of_pods(cluster, options.name, _usage(measured))
            else:
                document, table = _of_jobs(cluster.jobs(options.all_namespaces), measured)
            screen.show(document, [table])
            if not options.watch:
                break
            time.sleep(INTERVAL)
    if measured is None:
        screen.note(NO_METRICS)
    return DONE


def _usage(measured: Sequence[Object] | None) -> Usage:
    result: Usage = {}
    for pod in measured or ():
        parts = [container["usage"] for container in pod["containers"]]
        cores, memory = (sum((quantity(part.get(k, "0")) for part in parts), Decimal(0)) for k in ("cpu", "memory"))
        result[pod["metadata"]["namespace"], pod["metadata"]["name"]] = cores, memory
    return result


def _figures(cores: Decimal | None, memory: Decimal | None) -> dict[str, Any]:
    return {
        "cpuCores": None if cores is None else float(cores),
        "memoryBytes": None if memory is None else int(memory),
    }


def _shown(row: dict[str, Any]) -> list[str]:
    cores, memory = row["cpuCores"], row["memoryBytes"]
    return ["-" if cores is None else f"{cores:.2f}", "-" if memory is None else f"{memory / 2**20:.0f}Mi"]


def _of_pods(cluster: Cluster, name: str, usage: Usage) -> tuple[list[dict[str, Any]], Columns]:
    job = cluster.job(name)
    pools = {pool["name"]: pool for pool in job["spec"]["pools"]}
    colour, order = colours(pools), list(pools)
    found = [observe(pod) for pod in cluster.pods(name, job.get("status", {}).get("attempt", 0))]
    rows = [
        {
            "pod": pod.name,
            "pool": pod.pool,
            "vendor": pools[pod.pool]["vendor"],
            "node": pod.node or None,
            "state": pod.phase.value,
            "gpus": pools[pod.pool].get("gpusPerReplica", 0),
            **_figures(*usage.get((cluster.namespace, pod.name), (None, None))),
        }
        for pod in sorted((pod for pod in found if pod.pool in pools), key=lambda p: (order.index(p.pool), p.index))
    ]
    keys = ("pod", "pool", "vendor", "node", "state", "gpus")
    table = Columns(
        ("POD", "POOL", "VENDOR", "NODE", "STATE", "GPUS", "CPU", "MEMORY"),
        [[*(str(row[key] if row[key] is not None else "-") for key in keys), *_shown(row)] for row in rows],
        [colour[row["pool"]] for row in rows],
    )
    return rows, table


def _of_jobs(jobs: Sequence[Object], measured: Sequence[Object] | None) -> tuple[list[dict[str, Any]], Columns]:
    usage = _usage(measured)
    totals: dict[tuple[str, str], tuple[Decimal, Decimal]] = {}
    for pod in measured or ():
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["labels"][JOB_LABEL]
        cores, memory = usage[metadata["namespace"], metadata["name"]]
        before = totals.get(key, (Decimal(0), Decimal(0)))
        totals[key] = before[0] + cores, before[1] + memory
    rows = []
    for job in jobs:
        metadata, status = job["metadata"], job.get("status", {})
        gpus: Counter[str] = Counter()
        for pool in job["spec"]["pools"]:
            gpus[pool["vendor"]] += pool["replicas"] * pool.get("gpusPerReplica", 0)
        rows.append(
            {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "state": status.get("state") or "Pending",
                "ready": status.get("summary", {}).get("ready", ""),
                "gpus": dict(gpus),
                "restarts": status.get("restarts", 0),
                "created": metadata["creationTimestamp"],
                **_figures(*totals.get((metadata["namespace"], metadata["name"]), (None, None))),
            }
        )
    table = Columns(
        ("NAMESPACE", "NAME", "STATE", "READY", "GPUS ASKED", "RESTARTS", "AGE", "CPU", "MEMORY"),
        [
            [
                *(str(row[key]) for key in ("namespace", "name", "state", "ready")),
                ", ".join(f"{count} {vendor}" for vendor, count in row["gpus"].items() if count) or "-",
                str(row["restarts"]),
                age(row["created"]),
                *_shown(row),
            ]
            for row in rows
        ],
    )
    return rows, table
