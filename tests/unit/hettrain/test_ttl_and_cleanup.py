"""spec.ttlSecondsAfterFinished and spec.cleanPodPolicy: what stays of a job that is over."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, NVIDIA, started


def over(code: int = 0, **spec: object) -> FakeCluster:
    """A job that has just ended."""
    cluster = started(**spec)
    for name in (NVIDIA, AMD) if code == 0 else (AMD,):
        cluster.end(name, code)
    cluster.reconcile()
    return cluster


@pytest.mark.parametrize("code", [0, 1])
@given(seconds=st.integers(0, 1000), early=st.integers(1, 1000))
def test_a_job_goes_when_its_time_is_over_and_not_before(code: int, seconds: int, early: int) -> None:
    cluster = over(code, ttlSecondsAfterFinished=seconds)
    cluster.now += timedelta(seconds=max(seconds - early, 0))
    cluster.reconcile()
    assert cluster.gone is (seconds == 0)
    cluster.now += timedelta(seconds=min(early, seconds))
    cluster.reconcile()
    assert cluster.gone


@pytest.mark.parametrize("sidecar", [True, False])
def test_a_pod_whose_trainer_has_ended_keeps_its_log_unless_something_of_it_still_runs(sidecar: bool) -> None:
    cluster = started()
    for name in (NVIDIA, AMD):
        cluster.end(name)
        status = cluster.pods[name]["status"]
        status["phase"] = "Running"  # the kubelet has told of the container first
        if sidecar:
            cluster.pods[name]["spec"]["containers"].append({"name": "proxy", "image": "proxy"})
            status["containerStatuses"].append({"name": "proxy", "state": {"running": {}}})
    cluster.settle()
    cluster._reap()
    assert cluster.status.state == "Complete"
    assert bool(cluster.pods) is not sidecar


def test_the_end_is_written_down_before_the_job_goes() -> None:
    cluster = over(ttlSecondsAfterFinished=0)
    assert not cluster.gone
    assert cluster.status.state == "Complete"
    assert cluster.events[-1] == "Complete"


def test_the_operator_looks_again_when_the_time_is_over() -> None:
    assert over(ttlSecondsAfterFinished=70, activeDeadlineSeconds=30).look().requeue_after == 70
    assert over(activeDeadlineSeconds=30, startupDeadlineSeconds=20).look().requeue_after is None


def test_a_job_without_a_ttl_stays() -> None:
    cluster = over()
    cluster.now += timedelta(days=1000)
    cluster.reconcile()
    assert not cluster.gone


def test_a_ttl_may_be_given_to_a_job_that_is_over() -> None:
    cluster = over()
    cluster.now += timedelta(seconds=60)
    cluster.change(ttl_seconds_after_finished=30)
    cluster.reconcile()
    assert cluster.gone


@pytest.mark.parametrize(("policy", "left"), [("Running", [AMD]), ("All", []), ("None", [NVIDIA, AMD])])
def test_the_pods_that_stay_are_those_that_the_policy_leaves(policy: str, left: list[str]) -> None:
    cluster = over(1, cleanPodPolicy=policy)
    cluster._reap()
    cluster.settle()
    assert list(cluster.pods) == left
    assert cluster.status.first_failure.pod == AMD, "known though its pod may be gone"
    assert cluster.status.pools[1].failed == 1
    assert not cluster.look().actions


def test_pods_of_an_earlier_attempt_never_stay() -> None:
    cluster = started(cleanPodPolicy="None", failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    cluster.lose_node(NVIDIA)
    cluster.settle()
    cluster.run()
    cluster.end("job-1-amd-0000", 1, reason="Error")
    cluster.pods[NVIDIA]["metadata"].pop("deletionTimestamp")
    cluster.change(failure_policy=started().job.spec.failure_policy)
    cluster.reconcile()
    assert cluster.status.state == "Failed"
    assert "deletionTimestamp" in cluster.pods[NVIDIA]["metadata"]
