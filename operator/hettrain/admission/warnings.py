"""What a user should know of a job that is valid all the same. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.api.pool import Pool
from hettrain.api.vendors import GPU_VENDORS, VENDORS
from hettrain.plan.pods import trainer_name

__all__ = ["warnings"]


def warnings(
    job: HetTrainingJob, pods: Mapping[str, Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]
) -> list[str]:
    """One text for each thing, the pool's name first. `pods`: by pool, one as it would be created. `nodes`: those of
    the cluster; none where they could not be read."""
    found: list[str] = []
    for pool in job.spec.pools:
        pod = pods.get(pool.name)
        if pod is not None:
            found += [f"pool {pool.name}: {text}" for text in _of_pool(pool, pod["spec"], nodes)]
    return found


def _of_pool(pool: Pool, spec: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    name = trainer_name(dict(spec))
    trainer = next(container for container in spec["containers"] if container["name"] == name)
    yield from _images(spec)
    limits = {kind: int(amount) for kind, amount in _limits(trainer).items() if "/" in kind and amount.isdecimal()}
    if pool.vendor in GPU_VENDORS and not limits and not spec.get("resourceClaims"):
        resource = VENDORS[pool.vendor].resource_name
        yield (
            f"vendor {pool.vendor}, but nothing asks for a GPU: set gpusPerReplica, or a limit of {resource} on "
            f"container {name}"
        )
    yield from _room(spec, limits, nodes)


def _limits(container: Mapping[str, Any]) -> dict[str, str]:
    return {kind: str(amount) for kind, amount in container.get("resources", {}).get("limits", {}).items()}


def _images(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        image = container.get("image", "")
        _, colon, tag = image.rpartition("/")[2].partition(":")
        if "@" not in image and (not colon or tag == "latest"):
            yield (
                f"container {container['name']}: image {image or '(none)'} may change between restarts: name a version "
                "or a digest"
            )


def _room(spec: Mapping[str, Any], limits: Mapping[str, int], nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Whether any node is large enough, were it empty. Autoscalers may know better: so it is only a warning."""
    if not nodes:
        return
    selector = spec.get("nodeSelector", {})
    fitting = [node for node in nodes if selector.items() <= node["metadata"].get("labels", {}).items()]
    if not fitting:
        labels = ", ".join(f"{key}={value}" for key, value in selector.items())
        yield f"no node of the cluster has the labels {labels} that its nodeSelector asks for"
        return
    for kind, wanted in limits.items():
        most = max(int(node.get("status", {}).get("allocatable", {}).get(kind, 0)) for node in fitting)
        if most < wanted:
            yield f"each pod asks for {wanted} {kind}, and no node that it may run on has more than {most}"
