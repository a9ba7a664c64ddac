"""The life of a job, told by reconcile alone: tests play everybody else."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hettrain.api import load_profile
from hettrain.reconcile import Children, reconcile

from tests.unit.hettrain.documents import CONTEXT, job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, NVIDIA, started

PROFILE = {
    "apiVersion": "hetccl.io/v1alpha1",
    "kind": "HetPoolProfile",
    "metadata": {"name": "h100"},
    "spec": {"vendor": "nvidia"},
}
PODS = [NVIDIA, AMD]


def test_the_service_and_the_token_come_before_the_pods() -> None:
    kinds = [action.manifest["kind"] for action in FakeCluster(job()).look().actions]
    assert kinds == ["Service", "Secret", "Pod", "Pod"]


def test_a_job_runs_and_completes() -> None:
    cluster = started()
    assert list(cluster.pods) == PODS
    assert cluster.status.state == "Running"
    assert cluster.status.summary.ready == "2/2"
    for name in PODS:
        cluster.end(name)
    cluster.settle()
    assert cluster.status.state == "Complete"
    assert cluster.status.completion_time is not None
    assert [found.completed_indexes for found in cluster.status.pools] == ["0", "0"]
    assert list(cluster.pods) == PODS, "finished pods stay for their logs"
    assert cluster.events == ["Started", "Running", "Complete"]


def test_reconcile_twice_asks_for_the_same() -> None:
    cluster = FakeCluster(job())
    assert cluster.look() == cluster.look()


def test_a_failed_pod_restarts_the_gang_once() -> None:
    cluster = started(failurePolicy={"maxRestarts": 3})
    cluster.end(PODS[1], 1, message="Traceback: boom")
    cluster.settle()
    assert sorted(cluster.pods) == ["job-1-amd-0000", "job-1-nvidia-0000"]
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 1)
    failure = cluster.status.first_failure
    assert failure is not None
    assert (failure.pod, failure.rank, failure.node, failure.exit_code) == (PODS[1], 1, "node", 1)
    assert failure.traceback == "Traceback: boom"


def test_the_first_failure_is_the_one_that_happened_first() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1})
    cluster.end(PODS[1], 7)
    cluster.now += timedelta(seconds=2)
    cluster.end(PODS[0], 1)
    cluster.reconcile()
    assert cluster.status.first_failure.exit_code == 7
    assert cluster.status.restarts == 1


def test_the_new_attempt_waits_until_the_old_one_is_gone() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    cluster.end(PODS[1], 1)
    cluster.reconcile()
    cluster.reconcile()
    assert sorted(cluster.pods) == sorted(PODS), "the other pod is still leaving"
    cluster._reap()
    cluster.reconcile()
    assert sorted(cluster.pods) == ["job-1-amd-0000", "job-1-nvidia-0000"]


def test_the_old_token_goes_when_the_new_attempt_starts() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1})
    cluster.end(PODS[0], 1)
    cluster.settle()
    assert [name for kind, name in cluster.objects if kind == "Secret"] == ["job-1-token"]


def test_a_pod_stuck_on_a_dead_node_is_replaced_after_a_deadline_and_never_forced() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    cluster.lose_node(PODS[0])
    since = cluster.now
    cluster.settle()
    assert cluster.now - since >= timedelta(seconds=CONTEXT.stuck_seconds)
    assert "job-0-nvidia-0000" in cluster.pods
    assert {"job-1-nvidia-0000", "job-1-amd-0000"} < set(cluster.pods)
    assert "PodStuck" in cluster.events
    assert cluster.status.restarts == 0


def test_restarts_pause_longer_each_time_up_to_the_limit() -> None:
    cluster = started(failurePolicy={"maxRestarts": 10, "backoff": {"initialSeconds": 2, "maxSeconds": 5}})
    pauses = []
    for _ in range(4):
        cluster.end(next(iter(cluster.pods)), 1)
        failed = cluster.now
        cluster.settle()
        pauses.append((cluster.now - failed).total_seconds())
        cluster.run()
        cluster.settle()
    assert pauses == [2, 4, 5, 5]


def test_the_budget_spent_fails_the_job_and_stops_every_pool() -> None:
    cluster = started()
    cluster.end(PODS[1], 1, reason="OOMKilled")
    cluster.settle()
    assert cluster.status.state == "Failed"
    assert list(cluster.pods) == [PODS[1]], "running pods go, failed ones stay for their logs"
    assert cluster.status.first_failure.reason == "OOMKilled"
    assert cluster.status.pools[1].failed == 1
    assert cluster.status.completion_time is not None


def test_a_finished_job_stays_finished_whatever_happens_to_its_pods() -> None:
    cluster = started()
    cluster.end(PODS[1], 1)
    cluster.settle()
    cluster.vanish(PODS[1])
    cluster.change(suspend=True)
    cluster.settle()
    assert cluster.status.state == "Failed"
    assert cluster.status.pools[1].failed == 1


@pytest.mark.parametrize("way", ["evict", "ask_deletion", "vanish"])
def test_a_disruption_restarts_the_gang_and_is_not_counted(way: str) -> None:
    cluster = started()
    getattr(cluster, way)(PODS[0])
    cluster.settle()
    assert sorted(cluster.pods) == ["job-1-amd-0000", "job-1-nvidia-0000"]
    assert cluster.status.restarts == 0
    assert cluster.events.count("Disrupted") == 1


def test_a_node_that_shuts_down_is_a_disruption_though_the_trainer_failed_by_it() -> None:
    cluster = started()
    cluster.end(PODS[0], 143, reason="Error")
    cluster.pods[PODS[0]]["status"]["reason"] = "NodeShutdown"
    cluster.end(PODS[1], 1)
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 0)


def test_a_pod_whose_success_was_recorded_may_disappear() -> None:
    cluster = started()
    cluster.end(PODS[0])
    cluster.settle()
    cluster.vanish(PODS[0])
    cluster.settle()
    assert cluster.status.attempt == 0
    cluster.end(PODS[1])
    cluster.settle()
    assert cluster.status.state == "Complete"


def test_a_sidecar_that_outlives_the_trainer_does_not_keep_the_job_from_completing() -> None:
    cluster = started()
    for name in PODS:
        cluster.end(name)
        cluster.pods[name]["status"]["phase"] = "Running"
        cluster.pods[name]["spec"]["containers"].append({"name": "istio-proxy", "image": "proxy"})
        cluster.pods[name]["status"]["containerStatuses"].append({"name": "istio-proxy", "state": {"running": {}}})
    cluster.settle()
    assert cluster.status.state == "Complete"
    assert not cluster.pods


def test_suspend_deletes_the_pods_and_resume_starts_over() -> None:
    cluster = started()
    cluster.change(suspend=True)
    cluster.settle()
    assert not cluster.pods
    assert cluster.status.state == "Suspended"
    assert cluster.status.start_time is None
    cluster.change(suspend=False)
    cluster.settle()
    assert sorted(cluster.pods) == ["job-1-amd-0000", "job-1-nvidia-0000"]
    assert cluster.status.restarts == 0
    assert cluster.condition("Suspended") == ("False", "Resumed")
    assert cluster.events[-1] == "Resumed"


def test_a_job_born_suspended_makes_nothing() -> None:
    cluster = FakeCluster(job(suspend=True))
    cluster.settle()
    assert not cluster.pods
    assert not cluster.objects
    assert (cluster.status.state, cluster.status.attempt) == ("Suspended", 0)


def test_a_job_of_another_controller_is_left_alone() -> None:
    outcome = reconcile(job(managedBy="kueue.x-k8s.io/multikueue"), Children(), FakeCluster(job()).now, CONTEXT)
    assert not outcome.actions
    assert outcome.status.state == ""


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    cluster = FakeCluster(job())
    gone = cluster.job.metadata.model_copy(update={"deletion_timestamp": "2030-01-01T00:00:00Z"})
    cluster.job = cluster.job.model_copy(update={"metadata": gone})
    assert not cluster.look().actions


@pytest.mark.parametrize("kind_and_name", [("Service", "job"), ("Secret", "job-0-token"), ("Pod", PODS[1])])
def test_a_name_that_is_taken_blocks_the_job_and_says_whose_it_is(kind_and_name: tuple[str, str]) -> None:
    cluster = FakeCluster(job())
    cluster.taken[kind_and_name] = "Deployment/shop"
    cluster.settle()
    assert cluster.condition("Blocked") == ("True", "NameTaken")
    assert cluster.status.state == "Blocked"
    blocked = next(c for c in cluster.status.conditions if c.type == "Blocked")
    assert "Deployment/shop" in blocked.message
    del cluster.taken[kind_and_name]
    cluster.settle()
    assert list(cluster.pods) == PODS
    assert cluster.condition("Blocked")[0] == "False"


@pytest.mark.parametrize(
    "reason", ["ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"]
)
def test_a_container_that_cannot_start_blocks_the_job_and_is_named(reason: str) -> None:
    cluster = FakeCluster(job())
    cluster.settle()
    waiting = {"name": "trainer", "image": "user/image", "state": {"waiting": {"reason": reason, "message": "no way"}}}
    cluster.pods[PODS[1]]["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    cluster.settle()
    assert cluster.condition("Blocked") == ("True", reason)
    message = next(c.message for c in cluster.status.conditions if c.type == "Blocked")
    assert all(word in message for word in ("pool amd", "trainer", PODS[1], "user/image", "no way"))
    cluster.run()
    cluster.settle()
    assert cluster.status.state == "Running"


def test_an_unschedulable_pod_names_the_pool_and_the_missing_resource() -> None:
    cluster = FakeCluster(job())
    cluster.settle()
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/4 nodes are available: 2 Insufficient amd.com/gpu, 2 node(s) had untolerated taint(s).",
    }
    cluster.pods[PODS[1]]["status"]["conditions"] = [condition]
    cluster.settle()
    message = next(c.message for c in cluster.status.conditions if c.type == "Blocked")
    assert "pool amd" in message
    assert "not enough amd.com/gpu:" in message


def test_a_missing_profile_blocks_the_job_until_it_is_there() -> None:
    cluster = FakeCluster(job(pool(profile="h100")))
    cluster.reconcile()
    assert cluster.condition("Blocked") == ("True", "ProfileNotFound")
    assert not cluster.pods
    cluster.context = replace(CONTEXT, profiles={"h100": load_profile(PROFILE)})
    cluster.settle()
    assert list(cluster.pods) == PODS[:1]


def test_a_user_setting_that_replaces_ours_is_an_event() -> None:
    template = {"spec": {"containers": [{"name": "t", "image": "i", "env": [{"name": "MASTER_PORT", "value": "1"}]}]}}
    cluster = FakeCluster(job(pool(template=template)))
    cluster.settle()
    assert "UserSetting" in cluster.events


def report(cluster: FakeCluster, *pools: str, attempt: int = 0) -> dict:
    ranks = [{"rank": rank, "pool": name, "simulated": True} for rank, name in enumerate(pools)]
    return {"version": 1, "job": f"team/job/{attempt}", "world_size": len(pools), "ranks": ranks}


def test_injection_is_unknown_until_rank_0_reports_and_then_true() -> None:
    cluster = started()
    assert cluster.condition("InjectionVerified") == ("Unknown", "NotReported")
    assert (cluster.asked[-1].address, cluster.asked[-1].secret) == ("10.0.0.1", "job-0-token")
    cluster.report = report(cluster, "nvidia", "amd")
    cluster.reconcile()
    assert cluster.condition("InjectionVerified") == ("True", "Reported")
    asked = len(cluster.asked)
    cluster.reconcile()
    assert len(cluster.asked) == asked


def test_a_report_without_a_pool_is_injection_missing() -> None:
    cluster = started()
    cluster.report = report(cluster, "nvidia")
    cluster.reconcile()
    assert cluster.condition("InjectionVerified") == ("False", "RanksMissing")
    message = next(c.message for c in cluster.status.conditions if c.type == "InjectionVerified")
    assert "pool amd: 0 of 1 ranks" in message


def test_a_report_of_an_earlier_attempt_says_nothing() -> None:
    cluster = started()
    cluster.report = report(cluster, "nvidia", "amd", attempt=7)
    cluster.reconcile()
    assert cluster.condition("InjectionVerified")[0] == "Unknown"


def test_shares_are_followed_where_the_load_is_balanced() -> None:
    cluster = started(balance={"mode": "Auto"})
    cluster.report = report(cluster, "nvidia", "amd") | {"shares": {"nvidia": 0.5, "amd": 0.5}}
    cluster.reconcile()
    assert cluster.condition("InjectionVerified") == ("True", "Reported")
    asked = len(cluster.asked)
    cluster.report = report(cluster, "nvidia", "amd") | {"shares": {"nvidia": 0.742, "amd": 0.258}}
    cluster.reconcile()
    assert [pool.share for pool in cluster.status.pools] == ["74%", "26%"]
    assert len(cluster.asked) > asked
    cluster.report = None
    cluster.reconcile()
    assert [pool.share for pool in cluster.status.pools] == ["74%", "26%"]


def test_a_restart_forgets_the_report_of_the_attempt_before() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1})
    cluster.report = report(cluster, "nvidia", "amd")
    cluster.reconcile()
    cluster.end(PODS[0], 1)
    cluster.settle()
    assert cluster.condition("InjectionVerified")[0] == "Unknown"


def test_a_lost_service_is_made_again_without_touching_the_pods() -> None:
    cluster = started()
    del cluster.objects["Service", "job"]
    created = list(cluster.created)
    cluster.settle()
    assert ("Service", "job") in cluster.objects
    assert cluster.created == created


def test_a_pod_with_changed_labels_is_no_member() -> None:
    cluster = started()
    cluster.pods[PODS[0]]["metadata"]["labels"]["hetccl.io/index"] = "x"
    cluster.settle()
    assert sorted(cluster.pods) == ["job-1-amd-0000", "job-1-nvidia-0000"]
