"""Session-wide clusters for tests; a test that cannot have one is skipped, and the reason says what is missing."""

from collections.abc import Iterator

import pytest

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster, running_cluster


def _running_or_skipped(nodes: int) -> Iterator[Cluster]:
    try:
        with running_cluster(nodes) as cluster:
            yield cluster
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """A real API server, controller manager and scheduler, without nodes; needs no root.

    `add_simulated_nodes` gives it nodes on which pods turn Running without a container.
    """
    yield from _running_or_skipped(0)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real Kubernetes with two real nodes, cluster DNS and Services; needs root."""
    yield from _running_or_skipped(2)
