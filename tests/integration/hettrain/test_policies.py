"""The policies of a job, as the operator's process keeps them against the real API server."""

import json
from typing import Any

import pytest

from tests.integration.hettrain.api_server import Refused
from tests.integration.hettrain.world import World

FIRST = ("job-0-nvidia-0000", "job-0-amd-0000")
SECOND = ("job-1-nvidia-0000", "job-1-amd-0000")
THIRD = ("job-2-nvidia-0000", "job-2-amd-0000")


def start(world: World, **spec: Any) -> None:
    world.create(**spec)
    world.until_pods(*FIRST)
    world.run()
    world.until_state("Running")


def test_failure_rules_tell_failures_apart(world: World) -> None:
    rules = [
        {"action": "Fail", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "RestartIgnoreLimit", "pools": ["amd"]},
    ]
    start(world, failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}, "rules": rules})
    world.end(FIRST[1], 1)
    world.until_pods(*SECOND)
    world.run()
    world.end(SECOND[1], 137, reason="OOMKilled")
    world.until_pods(*THIRD)
    status = world.status()
    assert (status["restarts"], status["ignoredRestarts"]) == (1, 1)
    world.run()
    world.end(THIRD[0], 42)
    world.until_state("Failed")
    assert world.condition("Failed")["reason"] == "FailurePolicy"


def test_one_pool_may_be_enough_for_success(world: World) -> None:
    start(world, successPolicy={"operator": "Any"})
    world.end(FIRST[1])
    world.until_state("Complete")
    world.until_pods(FIRST[1])
    assert world.condition("Complete")["reason"] == "SuccessPolicy"


def test_a_job_that_takes_too_long_fails_on_time(world: World) -> None:
    start(world, activeDeadlineSeconds=3)
    world.until_state("Failed")
    world.until_pods()
    assert world.condition("Failed")["reason"] == "DeadlineExceeded"


def test_pods_that_are_not_ready_in_time_restart_the_gang_and_then_fail_the_job(world: World) -> None:
    policy = {"maxRestarts": 1, "backoff": {"initialSeconds": 0}}
    world.create(startupDeadlineSeconds=2, failurePolicy=policy)
    world.until_pods(*SECOND)
    assert world.status()["firstFailure"]["reason"] == "StartupDeadlineExceeded"
    world.run(SECOND[0])
    world.until_state("Failed")
    message = world.condition("Failed")["message"]
    assert SECOND[1] in message
    assert SECOND[0] not in message


def test_a_deadline_that_a_suspended_job_would_miss_does_not_count(world: World) -> None:
    world.create(suspend=True, startupDeadlineSeconds=1, activeDeadlineSeconds=1)
    world.until_state("Suspended")
    since = world.job()["metadata"]["resourceVersion"]
    world.create(name="other", activeDeadlineSeconds=2)
    world.until_state("Failed", "other")
    assert world.job()["metadata"]["resourceVersion"] == since


def test_a_job_that_is_over_is_deleted_with_all_that_is_left_when_its_ttl_is_over(world: World) -> None:
    start(world, ttlSecondsAfterFinished=2)
    for pod in FIRST:
        world.end(pod)
    world.until_state("Complete")
    world.until("the job is gone", lambda: not world.api.items(world.jobs))
    # A garbage collector takes up to 40 s to notice CRDs that are new to it.
    world.until("everything is gone", lambda: not world.left_behind(), 80)


def test_clean_pod_policy_all_leaves_no_pod(world: World) -> None:
    start(world, cleanPodPolicy="All")
    world.end(FIRST[1], 1, message="Traceback: boom")
    world.until_state("Failed")
    world.until_pods()
    assert world.status()["firstFailure"]["traceback"] == "Traceback: boom"


def test_clean_pod_policy_none_touches_no_pod(world: World) -> None:
    start(world, cleanPodPolicy="None")
    world.end(FIRST[1], 1)
    world.until_state("Failed")
    world.create(name="marker")
    world.until("another job got its pods", lambda: any(name.startswith("marker") for name in world.pods()))
    assert not [pod for name, pod in world.pods().items() if name in FIRST and "deletionTimestamp" in pod["metadata"]]


def test_a_restart_by_hand_is_done_once_for_each_value_and_not_counted(world: World) -> None:
    start(world)
    for value, pods in (("1", SECOND), ("2", THIRD)):
        world.api.merge(f"{world.jobs}/job", {"metadata": {"annotations": {"hetccl.io/restart": value}}})
        world.until_pods(*pods)
        world.run()
        world.until_state("Running")
    assert world.status()["restarts"] == 0
    assert world.status()["restartRequest"] == "2"
    world.until("it is told", lambda: "RestartRequested" in {reason for reason, _ in world.events()})


def test_the_traceback_of_an_error_file_is_in_the_status_and_in_an_event(world: World) -> None:
    start(world)
    left = {"message": "E", "extraInfo": {"py_callstack": "Traceback:\nValueError: boom", "timestamp": "1"}}
    world.end(FIRST[1], 1, message=json.dumps({"message": left}))
    world.until_state("Failed")
    assert world.status()["firstFailure"]["traceback"] == "Traceback:\nValueError: boom"
    world.until(
        "it is told", lambda: any(r == "PodFailed" and m.endswith("ValueError: boom") for r, m in world.events())
    )


def test_a_disruption_budget_keeps_an_eviction_off_a_gang_that_runs(world: World) -> None:
    budgets = f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets"

    def names() -> list[str]:
        return [budget["metadata"]["name"] for budget in world.api.items(budgets)]

    start(world, disruptionBudget="Gang")
    world.until("both pods count", lambda: world.api("GET", f"{budgets}/job-0")["status"]["currentHealthy"] == 2)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": FIRST[0]}}
    with pytest.raises(Refused) as refused:
        world.api("POST", f"/api/v1/namespaces/{world.namespace}/pods/{FIRST[0]}/eviction", eviction)
    assert refused.value.status == 429
    assert names() == ["job-0"]
    world.change(suspend=True)
    world.until_pods()
    world.change(suspend=False)
    world.until_pods(*SECOND)
    world.until("the new attempt has the only one", lambda: names() == ["job-1"])
