"""One system for all end-to-end tests, and a namespace for each."""

import itertools
from collections.abc import Iterator

import pytest

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster
from tests.e2e.system import System, running_system

_numbers = itertools.count(1)
IMAGES_AND_INSTALL_SECONDS = 900
"""Of the first test: making the images takes minutes where the cache is empty."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the system waits for it to be made."""
    first = next((item for item in items if "system" in getattr(item, "fixturenames", ())), None)
    if first is not None:
        first.add_marker(pytest.mark.timeout(IMAGES_AND_INSTALL_SECONDS))


@pytest.fixture(scope="session")
def system(cluster: Cluster) -> Iterator[System]:
    """The operator, installed in a real cluster with simulated GPUs."""
    try:
        with running_system(cluster) as running:
            yield running
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def namespace(system: System) -> Iterator[str]:
    """A namespace that is deleted after the test, without waiting for its end."""
    name = f"team-{next(_numbers)}"
    system.cluster.kubectl("create", "namespace", name)
    yield name
    system.cluster.kubectl("delete", "namespace", name, "--wait=false")
