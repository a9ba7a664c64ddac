"""spec.activeDeadlineSeconds and spec.startupDeadlineSeconds."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hettrain.documents import job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, NVIDIA, started


def later(cluster: FakeCluster, seconds: float) -> None:
    cluster.now += timedelta(seconds=seconds)
    cluster.reconcile()


def message(cluster: FakeCluster, kind: str) -> str:
    return next(c.message for c in cluster.status.conditions if c.type == kind)


def starting(**spec: object) -> FakeCluster:
    """A job whose pods have just been made."""
    cluster = FakeCluster(job(**{"startupDeadlineSeconds": 60, **spec}))
    cluster.reconcile()
    cluster.reconcile()
    return cluster


def test_a_job_that_is_not_done_in_time_fails_and_its_pods_go() -> None:
    cluster = started(activeDeadlineSeconds=100)
    later(cluster, 99)
    assert cluster.status.state == "Running"
    later(cluster, 1)
    cluster._reap()
    assert cluster.condition("Failed") == ("True", "DeadlineExceeded")
    assert "100 s" in message(cluster, "Failed")
    assert not cluster.pods


def test_the_operator_looks_again_when_the_deadline_comes() -> None:
    cluster = starting(startupDeadlineSeconds=60, activeDeadlineSeconds=100)
    assert cluster.look().requeue_after == 60
    cluster.now += timedelta(seconds=10)
    assert cluster.look().requeue_after == 50
    cluster.change(startup_deadline_seconds=None)
    assert cluster.look().requeue_after == 90


def test_the_active_deadline_goes_on_over_restarts_and_ends_a_pause() -> None:
    backoff = {"initialSeconds": 200, "maxSeconds": 200}
    cluster = started(activeDeadlineSeconds=100, failurePolicy={"maxRestarts": 9, "backoff": backoff})
    later(cluster, 50)
    cluster.end(AMD, 1)
    cluster.reconcile()
    assert cluster.status.state == "Restarting"
    later(cluster, 50)
    assert cluster.condition("Failed") == ("True", "DeadlineExceeded")
    assert cluster.status.first_failure.pod == AMD, "what was wrong before is still known"


def test_success_that_is_seen_late_is_success() -> None:
    cluster = started(activeDeadlineSeconds=100)
    cluster.end(NVIDIA)
    cluster.end(AMD)
    later(cluster, 1000)
    assert cluster.status.state == "Complete"


def test_a_deadline_may_be_given_to_a_running_job_and_taken_away() -> None:
    cluster = started(activeDeadlineSeconds=100)
    cluster.change(active_deadline_seconds=None)
    later(cluster, 200)
    assert cluster.status.state == "Running"
    cluster.change(active_deadline_seconds=150)
    cluster.reconcile()
    assert cluster.status.state == "Failed"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=12))
def test_the_active_deadline_counts_from_the_last_resume_and_never_while_suspended(
    spans: list[tuple[bool, int]],
) -> None:
    cluster = FakeCluster(job(activeDeadlineSeconds=100, startupDeadlineSeconds=1000))
    running = 0
    for suspended, seconds in spans:
        cluster.change(suspend=suspended)
        cluster.reconcile()
        running = 0 if suspended else running + seconds
        later(cluster, seconds)
        assert (cluster.status.state == "Failed") is (running >= 100)
        if running >= 100:
            return


def test_pods_that_are_not_ready_in_time_fail_the_attempt_and_are_named_with_what_blocks_them() -> None:
    cluster = starting()
    cluster.run(NVIDIA)
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient amd.com/gpu.",
    }
    cluster.pods[AMD]["status"]["conditions"] = [unschedulable]
    later(cluster, 59)
    assert cluster.status.state == "Blocked"
    later(cluster, 1)
    assert cluster.condition("Failed") == ("True", "StartupDeadlineExceeded")
    said = message(cluster, "Failed")
    assert all(words in said for words in ("60 s", f"1 of 1 of pool amd ({AMD})", "not enough amd.com/gpu"))
    assert "pool nvidia" not in said
    failure = cluster.status.first_failure
    assert (failure.pod, failure.pool, failure.rank, failure.reason) == (AMD, "amd", 1, "StartupDeadlineExceeded")


def test_a_late_start_is_counted_and_tried_again_within_the_budget() -> None:
    cluster = starting(failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    later(cluster, 60)
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 1)
    cluster._reap()
    later(cluster, 30)
    later(cluster, 59)
    assert cluster.status.state != "Failed", "the clock starts when the pods of the attempt before are gone"
    later(cluster, 1)
    assert cluster.condition("Failed") == ("True", "StartupDeadlineExceeded")


def test_a_rule_may_know_a_late_start_by_its_reason_and_pool() -> None:
    rule = {"action": "Fail", "onReasons": ["StartupDeadlineExceeded"], "pools": ["amd"]}
    cluster = starting(failurePolicy={"maxRestarts": 9, "rules": [rule]})
    later(cluster, 60)
    assert cluster.condition("Failed") == ("True", "FailurePolicy")


def test_an_attempt_that_was_ready_once_has_started_for_good() -> None:
    cluster = started(startupDeadlineSeconds=60)
    cluster.pods[AMD]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    later(cluster, 100)
    assert cluster.condition("PodsReady") == ("False", "PodsStarting")
    assert cluster.status.attempt == 0
    assert cluster.status.state != "Failed"


def test_pods_that_are_found_ready_after_the_deadline_are_ready() -> None:
    cluster = starting()
    cluster.run()
    later(cluster, 1000)
    assert cluster.status.state == "Running"


def test_a_suspended_start_begins_its_clock_anew() -> None:
    cluster = starting()
    later(cluster, 50)
    cluster.change(suspend=True)
    cluster.settle()
    later(cluster, 500)
    cluster.change(suspend=False)
    cluster.reconcile()
    later(cluster, 59)
    assert cluster.status.state != "Failed"
    later(cluster, 1)
    assert cluster.status.state == "Failed"


def test_pods_that_cannot_even_be_made_are_late_too() -> None:
    cluster = FakeCluster(job(pool(profile="missing"), startupDeadlineSeconds=60))
    cluster.reconcile()
    later(cluster, 60)
    assert cluster.condition("Failed") == ("True", "StartupDeadlineExceeded")
    assert "HetPoolProfile missing" in message(cluster, "Failed")
