"""What a queue of Kueue's has to say to a job that is put into it. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.gang.kueue import queue_of

__all__ = ["queue_warnings"]

Object = Mapping[str, Any]


def queue_warnings(
    job: HetTrainingJob, pods: Mapping[str, Object], local: Object | None, cluster: Object | None
) -> Iterator[str]:
    """Why the job may wait for ever. `pods`: by pool, one as it would be created. `local`, `cluster`: its LocalQueue
    and the ClusterQueue of that, None where there is none. Queues change, so that these are only warnings."""
    queue = queue_of(job)
    if local is None:
        yield f"there is no LocalQueue {queue} in namespace {job.metadata.namespace}: the job waits until there is"
        return
    name = local["spec"]["clusterQueue"]
    if cluster is None:
        yield f"LocalQueue {queue} leads to ClusterQueue {name}, which does not exist: the job waits until it does"
        return
    for each, kind in ((local, f"LocalQueue {queue}"), (cluster, f"ClusterQueue {name}")):
        if each["spec"].get("stopPolicy", "None") != "None":
            yield f"{kind} is stopped: the job waits until it goes on"
    yield from _uncovered(pods, cluster["spec"], name)
    if not (cluster["spec"].get("cohortName") or cluster["spec"].get("cohort")):
        yield from _too_much(job, pods, cluster["spec"], name)


def _uncovered(pods: Mapping[str, Object], queue: Object, name: str) -> Iterator[str]:
    covered = {kind for group in queue.get("resourceGroups", ()) for kind in group["coveredResources"]}
    for pool, pod in pods.items():
        lacking = sorted({kind for kind, _ in _requests(pod)} - covered)
        if lacking:
            yield (
                f"pool {pool}: no resource group of ClusterQueue {name} covers {', '.join(lacking)}: "
                "Kueue admits it only where its configuration leaves that out (resources.excludeResourcePrefixes)"
            )


def _too_much(job: HetTrainingJob, pods: Mapping[str, Object], queue: Object, name: str) -> Iterator[str]:
    """More than all flavors together, in a queue that cannot borrow."""
    quota: Counter[str] = Counter()
    for group in queue.get("resourceGroups", ()):
        for resource in (each for flavor in group["flavors"] for each in flavor["resources"]):
            quota[resource["name"]] += _whole(resource["nominalQuota"])
    wanted: Counter[str] = Counter()
    for pool in job.spec.pools:
        for kind, amount in _requests(pods.get(pool.name, {})):
            wanted[kind] += pool.replicas * _whole(amount)
    for kind in sorted(wanted):
        # Amounts with a unit are left to Kueue.
        if "/" in kind and kind in quota and wanted[kind] > quota[kind]:
            yield f"the job asks for {wanted[kind]} {kind}, and ClusterQueue {name} has {quota[kind]} in all"


def _requests(pod: Object) -> Iterator[tuple[str, Any]]:
    for container in pod.get("spec", {}).get("containers", ()):
        resources = container.get("resources", {})
        yield from {**resources.get("limits", {}), **resources.get("requests", {})}.items()


def _whole(amount: Any) -> int:
    return int(amount) if str(amount).isdecimal() else 0
