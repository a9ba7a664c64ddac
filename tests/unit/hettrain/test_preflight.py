"""spec.hetccl.preflight: what is checked in the pods before the trainers, and what becomes of it."""

import json
from typing import Any

import pytest
from hettrain.plan import members, plan
from hettrain.plan.preflight import PREFLIGHT

from hetccl.doctor import MESSAGE_BYTES, Finding, Level, message
from tests.unit.hettrain.documents import CONTEXT, job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster

BROKEN = {"name": "rdma", "level": "broken", "text": "memlock is 64 KiB", "advice": "raise it"}
FALLBACK = {"name": "shm", "level": "fallback", "text": "/dev/shm is small", "advice": ""}


def pods(**hetccl: Any) -> list[dict[str, Any]]:
    wanted = job(hetccl=hetccl)
    return [each.manifest["spec"] for each in plan(wanted, 0, members(wanted), CONTEXT).pods]


def test_the_check_sees_what_the_trainer_will() -> None:
    for spec in pods(preflight="Fail"):
        (check,) = [each for each in spec["initContainers"] if each["name"] == PREFLIGHT]
        (trainer,) = spec["containers"]
        assert check["command"] == ["/opt/hetccl/bootstrap/preflight", "Fail"]
        assert all(check[key] == trainer[key] for key in ("image", "env", "resources", "volumeMounts"))


def test_an_image_with_hetccl_of_its_own_runs_its_own_check() -> None:
    (check,) = pods(preflight="Warn", inject=False)[0]["initContainers"]
    assert check["command"] == ["hetccl", "preflight", "Warn"]


def test_there_is_no_check_by_default() -> None:
    assert all("initContainers" not in spec for spec in pods())


def starting(mode: str) -> FakeCluster:
    cluster = FakeCluster(
        job(pool(replicas=2), pool("amd", vendor="amd"), hetccl={"preflight": mode}, failurePolicy={"maxRestarts": 3})
    )
    cluster.settle()
    return cluster


def check(cluster: FakeCluster, name: str, *found: dict[str, str], code: int = 0) -> None:
    """The preflight of a pod ends."""
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": json.dumps(found)}}
    status = cluster.pods[name]["status"]
    status["initContainerStatuses"] = [{"name": PREFLIGHT, "state": state}]
    cluster.pods[name]["spec"]["nodeName"] = f"node-of-{name}"
    if code:
        status["phase"] = "Failed"


PODS = ("job-0-nvidia-0000", "job-0-nvidia-0001", "job-0-amd-0000")


def said(cluster: FakeCluster) -> str:
    return next(c.message for c in cluster.status.conditions if c.type == "PreflightPassed")


def test_the_condition_waits_for_all_pods_and_then_passes() -> None:
    cluster = starting("Warn")
    assert cluster.condition("PreflightPassed") == ("Unknown", "Running")
    for name in PODS:
        check(cluster, name)
        cluster.reconcile()
    assert cluster.condition("PreflightPassed") == ("True", "Passed")


def test_pods_that_say_the_same_are_told_of_together() -> None:
    cluster = starting("Warn")
    for name in PODS:
        check(cluster, name, FALLBACK)
    cluster.reconcile()
    assert cluster.condition("PreflightPassed") == ("True", "Fallbacks")
    assert said(cluster).splitlines() == [
        "pool nvidia, job-0-nvidia-0000 on node node-of-job-0-nvidia-0000 and 1 more: shm: /dev/shm is small",
        "pool amd, job-0-amd-0000 on node node-of-job-0-amd-0000: shm: /dev/shm is small",
    ]


def test_warn_says_what_is_broken_and_goes_on() -> None:
    cluster = starting("Warn")
    check(cluster, PODS[2], BROKEN, FALLBACK)
    cluster.settle()
    assert cluster.condition("PreflightPassed") == ("False", "Broken")
    assert "pool amd" in said(cluster)
    assert "rdma: memlock is 64 KiB -> raise it" in said(cluster)
    assert "/dev/shm" not in said(cluster)
    assert cluster.status.attempt == 0


def test_fail_restarts_the_gang_off_the_bad_node() -> None:
    cluster = starting("Fail")
    check(cluster, PODS[1], BROKEN, code=2)
    cluster.settle()
    cluster._reap()
    cluster.settle()
    status = cluster.status
    assert (status.attempt, status.restarts, status.avoided_nodes) == (1, 1, [f"node-of-{PODS[1]}"])
    assert status.first_failure.pod == PODS[1]
    assert "rdma: memlock is 64 KiB -> raise it" in status.first_failure.traceback
    for found in cluster.pods.values():
        affinity = found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity["nodeSelectorTerms"]
        assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": [f"node-of-{PODS[1]}"]}]


@pytest.mark.parametrize("way", ["suspend", "restart"])
def test_the_user_can_have_avoided_nodes_tried_again(way: str) -> None:
    cluster = starting("Fail")
    for name in PODS:
        check(cluster, name, BROKEN, code=2)
    cluster.settle()
    assert cluster.status.avoided_nodes
    if way == "suspend":
        cluster.change(suspend=True)
    else:
        cluster.ask_restart("again")
    cluster.settle()
    assert cluster.status.avoided_nodes == []


def test_a_check_that_dies_without_a_word_is_broken() -> None:
    cluster = starting("Warn")
    check(cluster, PODS[0], code=1)
    cluster.pods[PODS[0]]["status"]["phase"] = "Pending"
    cluster.reconcile()
    assert cluster.condition("PreflightPassed") == ("False", "Broken")
    assert "the check itself failed with exit code 1" in said(cluster)


def test_a_check_that_could_not_be_run_says_nothing_about_its_node() -> None:
    cluster = starting("Fail")
    check(cluster, PODS[0], code=1)
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.avoided_nodes) == (1, [])


def test_findings_fit_into_a_termination_message_the_worst_first() -> None:
    found = [Finding(f"f{number}", Level.FALLBACK, "x" * 300) for number in range(30)]
    text = message([Finding("fine", Level.OK, "y"), *found, Finding("bad", Level.BROKEN, "z" * 300)])
    assert len(text.encode()) <= MESSAGE_BYTES
    rows = json.loads(text)
    assert rows[0]["name"] == "bad"
    assert len(rows) > 5
    assert "fine" not in text
