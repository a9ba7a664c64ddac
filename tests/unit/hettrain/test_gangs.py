"""A job that asks for a gang scheduler: what that is told, and what is said where the cluster does not have it."""

from typing import Any

import pytest
from hettrain.actions import Action, Create, Delete, Refusal, Try
from hettrain.kube import kind_of
from hettrain.plan import plan
from hettrain.plan.ranks import members

from tests.unit.hettrain.documents import CONTEXT, job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import NVIDIA, started

GANGS = {
    "Kubernetes": "PodGroup.scheduling.k8s.io",
    "Volcano": "PodGroup.scheduling.volcano.sh",
    "Coscheduling": "PodGroup.scheduling.x-k8s.io",
}


def order(actions: tuple[Action, ...]) -> list[str]:
    return [kind_of(each.manifest) if isinstance(each, Create) else type(each).__name__ for each in actions]


def deleted(actions: tuple[Action, ...], kind: str) -> list[str]:
    return [action.name for action in actions if isinstance(action, Delete) and action.kind == kind]


def first_pod(**scheduling: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one object of the scheduler's, and a pod."""
    spec = job(pool(replicas=2), pool("amd", vendor="amd"), scheduling=scheduling)
    wanted = plan(spec, 0, members(spec), CONTEXT)
    (group,) = wanted.groups
    return group.manifest, wanted.pods[0].manifest


def test_kubernetes_own_gang_is_all_pods_of_all_pools_to_place_and_to_preempt() -> None:
    group, pod = first_pod(gang="Kubernetes", priorityClassName="high")
    assert group["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"all": {}},
        "priorityClassName": "high",
    }
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
    assert group["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]


def test_volcano_gets_its_group_its_queue_and_its_pods() -> None:
    group, pod = first_pod(gang="Volcano", queue="gpus")
    assert group["spec"] == {"minMember": 3, "queue": "gpus"}
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
    assert pod["spec"]["schedulerName"] == "volcano"
    assert "schedulingGates" not in pod["spec"], "its queue is none of Kueue's"


def test_coscheduling_gets_its_group_and_its_pods() -> None:
    group, pod = first_pod(gang="Coscheduling", schedulerName="mine")
    assert group["spec"] == {"minMember": 3}
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == group["metadata"]["name"]
    assert pod["spec"]["schedulerName"] == "mine"


def test_a_gang_in_a_queue_is_both() -> None:
    group, pod = first_pod(gang="Kubernetes", queue="team")
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
    assert pod["spec"]["schedulingGates"]


@pytest.mark.parametrize("gang", GANGS)
def test_the_group_is_there_before_the_pods_of_all_pools_are_made_at_once(gang: str) -> None:
    cluster = FakeCluster(job(scheduling={"gang": gang}))
    names = order(cluster.look().actions)
    assert names.index(GANGS[gang]) < names.index("Pod")
    assert names.count("Pod") == 2


def test_a_field_that_an_api_server_may_drop_is_tried_before_any_pod_is_made() -> None:
    cluster = FakeCluster(job(scheduling={"gang": "Kubernetes"}))
    actions = cluster.look().actions
    (tried,) = [action for action in actions if isinstance(action, Try)]
    assert tried.field == "schedulingGroup"
    assert "GenericWorkload" in tried.remedy
    assert order(actions).index("Try") < order(actions).index("Pod")
    assert not [action for action in FakeCluster(job()).look().actions if isinstance(action, Try)]


def test_a_scheduler_that_is_not_there_blocks_the_job_and_is_named() -> None:
    cluster = FakeCluster(job(scheduling={"gang": "Volcano"}))
    (group,) = plan(cluster.job, 0, [], CONTEXT).groups
    cluster.refusals = (Refusal("PodGroup", "job-0", "SchedulerMissing", group.remedy),)
    cluster.reconcile(steps=0)
    status = cluster.look().status
    blocked = next(condition for condition in status.conditions if condition.type == "Blocked")
    assert blocked.reason == "SchedulerMissing"
    assert "podgroups.scheduling.volcano.sh" in blocked.message


@pytest.mark.parametrize("gang", GANGS)
def test_a_group_goes_with_its_attempt_and_with_the_job_that_is_over(gang: str) -> None:
    retried = started(scheduling={"gang": gang}, failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    retried.end(NVIDIA, 1)
    retried.settle()
    assert [name for kind, name in retried.objects if kind == GANGS[gang]] == ["job-1"]
    done = started(scheduling={"gang": gang})
    for name in done.pods:
        done.end(name)
    assert deleted(done.look().actions, GANGS[gang]) == ["job-0"]
    held = started(scheduling={"gang": gang})
    held.change(suspend=True)
    assert deleted(held.look().actions, GANGS[gang]) == ["job-0"]


def test_of_a_gang_that_waits_the_pod_that_names_the_missing_resource_is_quoted() -> None:
    cluster = FakeCluster(job(scheduling={"gang": "Kubernetes"}))
    cluster.settle()
    said = ("minCount (2) cannot be satisfied", "0/4 nodes are available: 4 Insufficient amd.com/gpu.")
    for pod, message in zip(cluster.pods.values(), said, strict=True):
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"]["conditions"] = [unplaced]
    cluster.settle()
    blocked = next(condition for condition in cluster.status.conditions if condition.type == "Blocked")
    assert blocked.message.startswith("pool amd: no node has room for job-0-amd-0000: not enough amd.com/gpu")


POOL = {"hetccl.io/job-name": "job", "hetccl.io/attempt": "0", "hetccl.io/pool": "nvidia"}


@pytest.mark.parametrize("mode", ["Pack", "Spread"])
def test_a_pool_is_packed_or_spread_by_a_label_of_nodes_and_no_other_pool_with_it(mode: str) -> None:
    spec = job(pool(replicas=2, topology={"key": "rack", "mode": mode}), pool("amd", vendor="amd"))
    first, _, other = (pod.manifest["spec"] for pod in plan(spec, 0, members(spec), CONTEXT).pods)
    if mode == "Pack":
        (rule,) = first["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    else:
        (rule,) = first["topologySpreadConstraints"]
        assert (rule["maxSkew"], rule["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert rule["topologyKey"] == "rack"
    assert POOL.items() <= rule["labelSelector"]["matchLabels"].items()
    assert not {"affinity", "topologySpreadConstraints"} & other.keys()
