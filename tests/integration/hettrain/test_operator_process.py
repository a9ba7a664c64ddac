"""The operator killed, doubled, and restricted: the same end as without."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import free_ports, poll
from tests.integration.hettrain.api_server import ApiServer
from tests.integration.hettrain.conftest import operator
from tests.integration.hettrain.world import World
from tests.unit.hettrain.documents import pool

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def alone(api: ApiServer, namespace: str) -> World:
    """A namespace that no operator serves yet."""
    return World(api, namespace)


@pytest.fixture
def start(control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Starts operators for this namespace alone, each with a log of its own."""
    running = []

    def begin(name: str, *flags: str, lease: str = "mine") -> "subprocess.Popen[bytes]":
        where = ("--namespace", namespace, "--lease-namespace", namespace, "--lease-name", lease)
        context = operator(control_plane, tmp_path / name, *where, *flags)
        running.append(context)
        return context.__enter__()

    yield begin
    for context in running:
        context.__exit__(None, None, None)


def leads(log: Path) -> bool:
    return log.exists() and "holds the Lease" in log.read_text() and "hetccl comes from" in log.read_text()


def test_an_operator_killed_in_the_middle_makes_nothing_twice(alone: World, start: Start, tmp_path: Path) -> None:
    first = start("first")
    alone.create(pool(replicas=30), pool("amd", vendor="amd", replicas=30))
    alone.until("some pods are made", lambda: len(alone.pods()) > 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # The first is dead for certain: the second need not wait until its Lease says so, too.
    made = {name: pod["metadata"]["uid"] for name, pod in alone.pods().items()}
    start("second", lease="another")
    alone.until("all pods are made", lambda: len(alone.pods()) == 60, 40)
    after = {name: pod["metadata"]["uid"] for name, pod in alone.pods().items()}
    assert {name: after[name] for name in made} == made
    alone.until("the status counts them", lambda: sum(found["active"] for found in alone.status()["pools"]) == 60)
    assert alone.status()["attempt"] == 0


def test_what_happened_while_no_operator_ran_is_made_up_for(alone: World, start: Start) -> None:
    first = start("first")
    alone.create(failurePolicy={"maxRestarts": 1})
    alone.until_pods("job-0-nvidia-0000", "job-0-amd-0000")
    alone.run()
    alone.until_state("Running")
    first.send_signal(signal.SIGKILL)
    first.wait()
    alone.end("job-0-amd-0000", 1)
    start("second", lease="another")
    alone.until_pods("job-1-nvidia-0000", "job-1-amd-0000")
    assert alone.status()["restarts"] == 1


def test_a_second_operator_takes_over_within_15_seconds_of_the_firsts_death(
    alone: World, start: Start, tmp_path: Path
) -> None:
    first = start("first")
    poll("the first leads", lambda: leads(tmp_path / "first"), 20)
    start("second")
    poll("the second stands by", lambda: "standing by" in (tmp_path / "second").read_text(), 20)
    first.send_signal(signal.SIGKILL)
    first.wait()
    poll("the second leads", lambda: leads(tmp_path / "second"), 15)


def test_an_operator_told_to_stop_hands_over_at_once_and_exits_with_0(
    alone: World, start: Start, tmp_path: Path
) -> None:
    first = start("first")
    poll("the first leads", lambda: leads(tmp_path / "first"), 20)
    start("second")
    poll("the second stands by", lambda: "standing by" in (tmp_path / "second").read_text(), 20)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=20) == 0
    poll("the second leads", lambda: leads(tmp_path / "second"), 5)


def test_an_operator_that_lost_its_lease_leaves(alone: World, api: ApiServer, start: Start, tmp_path: Path) -> None:
    first = start("first")
    poll("the first leads", lambda: leads(tmp_path / "first"), 20)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{alone.namespace}/leases/mine"
    api.merge(lease, {"spec": {"holderIdentity": "usurper"}})
    assert first.wait(timeout=10) == 1
    assert "held by usurper" in (tmp_path / "first").read_text()
    api("DELETE", lease)


def test_without_a_cluster_it_says_so_and_exits_with_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hettrain.cli", "operator", "--hetccl-image", "i"]
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "no access to a cluster" in done.stderr
    assert "Traceback" not in done.stderr


def test_health_readiness_and_metrics_are_answered(alone: World, start: Start) -> None:
    port = free_ports(1)[0]
    start("first", "--health-port", str(port))

    def answer(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as response:
                text: str = response.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return ""
        return text

    poll("it is ready", lambda: bool(answer("/readyz")), 20)
    assert answer("/healthz")
    alone.create()
    alone.until("the job is counted", lambda: 'hettrain_jobs{state="Pending"} 1.0' in answer("/metrics"))
    metrics = answer("/metrics")
    assert 'hettrain_api_requests_total{code="201",resource="services",verb="POST"} 1.0' in metrics
    assert "hettrain_leader 1.0" in metrics
