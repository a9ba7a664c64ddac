"""Clusters in a state that tests of policies start from."""

from typing import Any

from tests.unit.hettrain.documents import job
from tests.unit.hettrain.fake_cluster import FakeCluster

__all__ = ["AMD", "NVIDIA", "started"]

NVIDIA, AMD = "job-0-nvidia-0000", "job-0-amd-0000"


def started(*pools: dict[str, Any], **spec: Any) -> FakeCluster:
    """A job whose pods all run."""
    cluster = FakeCluster(job(*pools, **spec))
    cluster.settle()
    cluster.run()
    cluster.settle()
    return cluster
