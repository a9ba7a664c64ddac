"""Other projects' controllers in a cluster: JobSet, Kueue. Each runs in a pod on the first real node."""

from tests.cluster.cluster import Cluster

__all__ = ["add_extra"]


def add_extra(cluster: Cluster, name: str) -> None:
    """Install `jobset` or `kueue` from its own manifests, and wait until it is up."""
    extra = cluster.binaries / "extra"
    next(iter(cluster.nodes.values())).import_image(extra / f"{name}.tar")
    cluster.kubectl("create", "namespace", f"{name}-system")
    cluster.kubectl("apply", "--server-side", "-f", extra / f"{name}.yaml")
    cluster.kubectl("--namespace", f"{name}-system", "rollout", "status", "deployment", "--timeout=180s", timeout=200)
