"""What breaks in mid-run is mended once."""

from typing import Any

import pytest

from tests.cluster.processes import poll
from tests.e2e.jobs import RunningJob, quickstart
from tests.e2e.system import NAMESPACE, System

LONG = 200
"""Steps enough to be disturbed in mid-run."""


def kill_container(system: System, pod: dict[str, Any], container: str) -> None:
    """SIGKILL to the first process of a running container, on its node."""
    (status,) = [each for each in pod["status"]["containerStatuses"] if each["name"] == container]
    node = system.cluster.nodes[pod["spec"]["nodeName"]]
    done = node.ctr("task", "kill", "--signal", "SIGKILL", status["containerID"].removeprefix("containerd://"))
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(400)
def test_a_killed_trainer_restarts_the_gang_once_and_the_job_completes(system: System, namespace: str) -> None:
    job = RunningJob.apply(system, namespace, quickstart(steps=LONG))
    job.wait_for_step(5)
    first = job.pods()
    kill_container(system, first["amd"], "trainer")
    status = job.wait_until_complete()
    assert status["restarts"] == 1
    assert status["attempt"] == int(first["amd"]["metadata"]["labels"]["hetccl.io/attempt"]) + 1
    second = job.pods()
    assert {pod["metadata"]["labels"]["hetccl.io/attempt"] for pod in second.values()} == {str(status["attempt"])}
    failure = status["firstFailure"]
    assert (failure["pod"], failure["exitCode"]) == (first["amd"]["metadata"]["name"], 137)
    comparison = job.compare_with_one_process()
    assert comparison.returncode == 0, comparison.stdout + comparison.stderr


@pytest.mark.timeout(400)
def test_a_killed_operator_makes_nothing_twice(system: System, namespace: str) -> None:
    job = RunningJob.apply(system, namespace, quickstart(steps=LONG))
    job.wait_for_step(5)
    before = job.uids()
    (operator,) = system.operator_pods()
    kill_container(system, operator, "operator")

    def restarted() -> bool:
        (pod,) = system.operator_pods()
        (status,) = pod["status"]["containerStatuses"]
        return bool(
            status["restartCount"] > operator["status"]["containerStatuses"][0]["restartCount"] and status["ready"]
        )

    poll("the operator is back", restarted, 90, interval=0.5)
    status = job.wait_until_complete()
    assert status["restarts"] == 0
    assert job.uids() == before
    created = system.cluster.get("events", "--namespace", namespace, "--field-selector", "reason=Created")["items"]
    per_container = [(event["involvedObject"]["uid"], event.get("count", 1)) for event in created]
    assert sorted(count for _, count in per_container) == [1] * len(job.pods())


def test_the_operator_that_is_deleted_while_pods_start_leaves_one_gang(system: System, namespace: str) -> None:
    (operator,) = system.operator_pods()
    job = RunningJob.apply(system, namespace, quickstart(steps=5))
    name = operator["metadata"]["name"]
    system.cluster.kubectl("delete", "pod", name, "--namespace", NAMESPACE, "--grace-period=0", "--force")
    status = job.wait_until_complete()
    assert status["restarts"] == 0
    assert len(job.children("pods")) == 2
    assert len(job.children("services")) == 1


@pytest.mark.timeout(400)
def test_a_chart_upgraded_under_a_running_job_leaves_its_pods_alone(system: System, namespace: str) -> None:
    """Even where the new operator would plan other pods: with an init container in the place of an image volume."""
    job = RunningJob.apply(system, namespace, quickstart(steps=LONG))
    job.wait_for_step(5)
    before = job.uids()
    (old,) = system.operator_pods()
    system.upgrade("hetccl.delivery=InitContainer", "podAnnotations.upgraded=yes")
    try:
        assert old["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in system.operator_pods() if leads(pod)]
        status = job.wait_until_complete()
        assert (status["attempt"], status["restarts"]) == (0, 0)
        assert job.uids() == before
    finally:
        system.upgrade("hetccl.delivery=Auto")


def leads(pod: dict[str, Any]) -> bool:
    """Whether a pod is here to stay."""
    return "deletionTimestamp" not in pod["metadata"]
