"""One control plane and one operator for all tests here; each test has a namespace of its own."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import poll
from tests.integration.hettrain.api_server import CRDS, ApiServer
from tests.integration.hettrain.world import World


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> ApiServer:
    """The API server with the CRDs, put there as a user would: a client-side apply."""
    control_plane.kubectl("apply", "-f", CRDS)
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    return ApiServer(control_plane.kubeconfig)


@pytest.fixture
def namespace(api: ApiServer) -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api("DELETE", f"/api/v1/namespaces/{name}")


@contextmanager
def operator(
    control_plane: Cluster, log: Path, *flags: str, kubeconfig: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The operator's process; stopped as a kubelet stops it. Without `kubeconfig` it may do whatever it likes."""
    command = [sys.executable, "-m", "hettrain.cli", "operator", "--hetccl-image", "registry.test/hetccl:1", *flags]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "KUBECONFIG": str(kubeconfig or control_plane.kubeconfig)},
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def _operator(
    control_plane: Cluster, api: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[bytes]]:
    log = tmp_path_factory.mktemp("operator") / "log"
    with operator(control_plane, log, "--report-poll-seconds", "0.2") as process:
        poll("the operator holds its Lease", lambda: b"holds the Lease" in log.read_bytes(), 30)
        yield process
        assert process.poll() is None, log.read_text()
    assert process.returncode == 0, log.read_text()
    assert b"Traceback" not in log.read_bytes(), log.read_text()


@pytest.fixture
def world(api: ApiServer, namespace: str, _operator: object) -> World:
    """A namespace that an operator serves."""
    return World(api, namespace)
