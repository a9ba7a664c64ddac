"""A job in a queue of Kueue's: one pod group, suspended until it is admitted, and back in the queue when evicted."""

from datetime import timedelta
from typing import Any

from hettrain.plan import plan
from hettrain.plan.ranks import members
from hettrain.status.times import parse_time

from tests.unit.hettrain.documents import CONTEXT, document, job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, NVIDIA

QUEUE = "kueue.x-k8s.io/queue-name"
GATE = {"name": "kueue.x-k8s.io/admission"}
NEXT = ["job-1-amd-0000", "job-1-nvidia-0000"]


def queued(*pools: dict[str, Any], **spec: Any) -> FakeCluster:
    """A job whose pods wait for Kueue, which knows of them."""
    cluster = FakeCluster(job(*pools, **{"scheduling": {"queue": "team"}, **spec}))
    cluster.reconcile()
    cluster.manage()
    cluster.settle()
    return cluster


def running(**spec: Any) -> FakeCluster:
    cluster = queued(**spec)
    cluster.admit()
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert cluster.status.state == "Running"
    return cluster


def message(cluster: FakeCluster, kind: str = "Suspended") -> str:
    return next(c.message for c in cluster.status.conditions if c.type == kind)


def workload(name: str, reserved: bool, said: str) -> dict[str, Any]:
    condition = {"type": "QuotaReserved", "status": str(reserved), "message": said}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


def test_all_pods_of_an_attempt_are_one_group_and_gated_from_the_start() -> None:
    cluster = queued(pool(replicas=2), pool("amd", vendor="amd"))
    for pod in cluster.pods.values():
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        assert labels[QUEUE] == "team"
        assert labels["kueue.x-k8s.io/pod-group-name"] == "job-uid-o-0"
        assert annotations["kueue.x-k8s.io/pod-group-total-count"] == "3"
        assert annotations["kueue.x-k8s.io/retriable-in-group"] == "false"
        assert pod["spec"]["schedulingGates"] == [GATE]


def test_the_label_of_a_job_names_its_queue_as_on_any_kind_and_its_other_labels_for_kueue_reach_the_pods() -> None:
    labels = {QUEUE: "mine", "kueue.x-k8s.io/priority-class": "high", "team": "blue"}
    labelled = document(scheduling={"queue": "team"})
    labelled["metadata"]["labels"] = labels
    spec = job().model_validate(labelled)
    (pod, _) = plan(spec, 0, members(spec), CONTEXT).pods
    found = pod.manifest["metadata"]["labels"]
    assert (found[QUEUE], found["kueue.x-k8s.io/priority-class"]) == ("mine", "high")
    assert "team" not in found


def test_a_job_in_no_queue_has_nothing_of_kueue() -> None:
    cluster = FakeCluster(job())
    cluster.settle()
    for pod in cluster.pods.values():
        assert "schedulingGates" not in pod["spec"]
        assert not any("kueue" in label for label in pod["metadata"]["labels"])


def test_pods_of_a_pool_are_alike_in_what_kueue_tells_kinds_of_pods_apart_by() -> None:
    cluster = queued(pool(replicas=12, rdma={"resourceName": "rdma/hca", "count": 2}))

    def role(pod: dict[str, Any]) -> dict[str, Any]:
        spec = pod["spec"]
        fields = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priorityClassName")
        fields += ("topologySpreadConstraints", "overhead", "resourceClaims", "resources")
        containers = [
            {name: container.get(name) for name in ("resources", "ports")}
            for container in (*spec.get("initContainers", ()), *spec["containers"])
        ]
        return {name: spec.get(name) for name in fields} | {"containers": containers}

    first, *others = map(role, cluster.pods.values())
    assert all(other == first for other in others)


def test_a_waiting_job_is_suspended_and_no_clock_of_it_runs() -> None:
    cluster = queued(activeDeadlineSeconds=60, startupDeadlineSeconds=30)
    assert cluster.status.state == "Suspended"
    assert cluster.condition("Suspended") == ("True", "Queued")
    cluster.now += timedelta(days=3)
    cluster.settle()
    assert cluster.status.start_time is None
    assert cluster.status.attempt_start_time is None
    cluster.admit()
    cluster.settle()
    assert cluster.condition("Suspended") == ("False", "Admitted")
    assert parse_time(cluster.status.start_time or "") == cluster.now
    assert parse_time(cluster.status.attempt_start_time or "") == cluster.now
    cluster.now += timedelta(seconds=31)
    cluster.settle()
    assert cluster.condition("Failed") == ("True", "StartupDeadlineExceeded")


def test_time_in_the_queue_between_two_attempts_does_not_count_against_the_active_deadline() -> None:
    cluster = running(activeDeadlineSeconds=100, failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    cluster.now += timedelta(seconds=50)
    cluster.end(NVIDIA, 1)
    cluster.settle()
    cluster.manage()
    cluster.settle()
    assert cluster.condition("Suspended") == ("True", "Queued")
    cluster.now += timedelta(days=1)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    assert cluster.condition("Failed")[0] != "True"
    cluster.run()
    cluster.settle()
    assert cluster.status.state == "Running"
    cluster.now += timedelta(seconds=60)
    cluster.settle()
    assert cluster.condition("Failed") == ("True", "DeadlineExceeded")


def test_what_kueue_lacks_is_said_with_the_name_of_the_pool() -> None:
    cluster = queued()
    said = "couldn't assign flavors to pod set amd: insufficient unused quota for amd.com/gpu in flavor mi300, 1 more"
    cluster.workload = workload("job-uid-o-0", False, said)
    cluster.settle()
    assert "queue team of Kueue" in message(cluster)
    assert "pool amd: insufficient unused quota for amd.com/gpu" in message(cluster)


def test_what_kueue_said_of_an_earlier_group_is_not_said_of_the_one_that_waits() -> None:
    cluster = queued()
    cluster.workload = workload("job-uid-o-7", False, "no room")
    cluster.settle()
    assert "no room" not in message(cluster)


def test_admission_checks_that_are_missing_once_there_is_quota_are_named() -> None:
    cluster = queued()
    cluster.workload = workload("job-uid-o-0", True, "Quota reserved")
    cluster.workload["status"]["admissionChecks"] = [
        {"name": "budget", "state": "Pending", "message": "not signed"},
        {"name": "power", "state": "Ready"},
    ]
    cluster.settle()
    assert message(cluster).endswith("missing are the admission checks budget (not signed)")


def test_an_evicted_job_comes_back_whole_as_a_new_group_and_shows_the_reason_until_it_is_admitted() -> None:
    cluster = running()
    cluster.take_back("WorkloadEvictedDueToPreempted", "Preempted to accommodate a workload")
    cluster.settle()
    assert sorted(cluster.pods) == NEXT
    groups = {pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in cluster.pods.values()}
    assert groups == {"job-uid-o-1"}
    cluster.manage()
    cluster.settle()
    assert cluster.status.state == "Suspended"
    assert cluster.condition("Suspended") == ("True", "WorkloadEvictedDueToPreempted")
    assert message(cluster).startswith("Preempted to accommodate a workload\nthe job waits in queue team")
    assert (cluster.status.restarts, cluster.status.start_time) == (0, None)
    cluster.admit()
    cluster.run()
    cluster.settle()
    assert cluster.status.state == "Running"


def test_a_job_that_was_taken_out_of_its_queue_stays_out_until_its_user_wants_it_back() -> None:
    cluster = running()
    cluster.take_back("WorkloadEvictedDueToDeactivated", "The workload is deactivated")
    cluster.settle()
    cluster.now += timedelta(days=1)
    cluster.settle()
    assert not cluster.pods
    assert cluster.condition("Suspended") == ("True", "WorkloadEvictedDueToDeactivated")
    assert "hetccl.io/restart" in message(cluster)
    cluster.ask_restart("now")
    cluster.settle()
    assert sorted(cluster.pods) == NEXT


def test_pods_that_only_a_finalizer_keeps_do_not_hold_the_next_attempt_back() -> None:
    cluster = running(failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    for pod in cluster.pods.values():
        pod["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    cluster.end(AMD, 1)
    cluster.reconcile()
    for pod in cluster.pods.values():
        pod["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    asked = cluster.reconcile().actions
    assert [action.name for action in asked if getattr(action, "kind", "") == "Workload"] == ["job-uid-o-0"]
    assert set(NEXT) <= set(cluster.pods)


def test_a_kueue_that_does_not_look_at_the_pods_blocks_the_job_and_is_named() -> None:
    cluster = FakeCluster(job(scheduling={"queue": "team"}))
    cluster.settle()
    assert cluster.condition("Blocked") == ("True", "SchedulerMissing")
    assert "install Kueue" in message(cluster, "Blocked")
    cluster.change(suspend=True)
    cluster.settle()
    cluster.change(suspend=False)
    cluster.reconcile()
    cluster.manage()
    cluster.settle()
    assert cluster.condition("Blocked")[0] == "False"
    assert cluster.condition("Suspended") == ("True", "Queued")


def test_more_pools_than_kueue_takes_block_a_job_that_a_label_put_into_a_queue() -> None:
    many = document(*(pool(f"p{i}") for i in range(9)))
    many["metadata"]["labels"] = {QUEUE: "team"}
    cluster = FakeCluster(job().model_validate(many))
    cluster.reconcile()
    assert cluster.condition("Blocked") == ("True", "TooManyPools")
    assert not cluster.pods


def test_a_priority_class_is_for_pods_whose_template_names_none() -> None:
    template = pool()["template"]
    mine = {"spec": {**template["spec"], "priorityClassName": "mine"}}
    spec = job(pool(), pool("amd", vendor="amd", template=mine), scheduling={"priorityClassName": "high"})
    pods = plan(spec, 0, members(spec), CONTEXT).pods
    assert [pod.manifest["spec"]["priorityClassName"] for pod in pods] == ["high", "mine"]
