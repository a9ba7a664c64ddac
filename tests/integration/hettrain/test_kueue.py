"""Jobs in queues of a real Kueue, with quota of two vendors' GPUs; nodes and their GPUs are simulated by kwok."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster, running_cluster
from tests.cluster.kueue import start_kueue
from tests.cluster.processes import poll
from tests.cluster.simulated_nodes import start_kwok
from tests.integration.hettrain.api_server import CRDS, ApiServer
from tests.integration.hettrain.chart_role import NAMESPACE, chart_kubeconfig
from tests.integration.hettrain.conftest import operator
from tests.integration.hettrain.world import World
from tests.unit.hettrain.documents import pool

QUOTA = 4
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
MEMBERS = ("nvidia-0000", "nvidia-0001", "amd-0000")
HIGH, LOW = "high", "low"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def kueue() -> Iterator[Cluster]:
    """A control plane of its own: Kueue's webhooks look at every pod."""
    try:
        with running_cluster() as cluster:
            start_kueue(cluster)
            start_kwok(cluster.processes, cluster.binaries, cluster.kubeconfig, pods_end=True)
            cluster.add_simulated_nodes(16)
            cluster.kubectl("apply", "-f", CRDS)
            cluster.apply(*(flavor(vendor) for vendor in ("nvidia", "amd")))
            cluster.apply(*(priority(name, value) for name, value in ((HIGH, 10), (LOW, -10))))
            yield cluster
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def kueue_api(kueue: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Its API server, with an operator at work that has the chart's rights."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with operator(kueue, log, f"--lease-namespace={NAMESPACE}", kubeconfig=chart_kubeconfig(kueue)) as process:
        poll("the operator holds its Lease", lambda: b"holds the Lease" in log.read_bytes(), 30)
        yield ApiServer(kueue.kubeconfig)
        assert process.poll() is None, log.read_text()
    assert b"Traceback" not in log.read_bytes(), log.read_text()


@pytest.fixture
def queue(kueue: Cluster, kueue_api: ApiServer) -> World:
    """A namespace whose LocalQueue `team` is all that uses a ClusterQueue."""
    name = f"test-{secrets.token_hex(4)}"
    kueue.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        kueue_object("ClusterQueue", name, cluster_queue()),
        kueue_object("LocalQueue", "team", {"clusterQueue": name}),
        namespace=name,
    )
    return World(kueue_api, name)


def kueue_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def flavor(vendor: str) -> dict[str, Any]:
    taint = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
    spec = {"nodeLabels": {"hetccl.io/vendor": vendor}, "tolerations": [taint]}
    return kueue_object("ResourceFlavor", vendor, spec)


def priority(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def cluster_queue() -> dict[str, Any]:
    def group(vendor: str) -> dict[str, Any]:
        quota = {"name": f"{vendor}.com/gpu", "nominalQuota": QUOTA}
        return {"coveredResources": [quota["name"]], "flavors": [{"name": vendor, "resources": [quota]}]}

    return {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [group("nvidia"), group("amd")],
    }


def pools(gpus: int = QUOTA) -> list[dict[str, Any]]:
    return [
        pool(
            replicas=2, gpusPerReplica=gpus // 2, template={"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
        ),
        pool(
            "amd", vendor="amd", gpusPerReplica=gpus, template={"spec": {"containers": [{"name": "t", "image": "i"}]}}
        ),
    ]


def create(world: World, name: str, priority_class: str | None = None, **spec: Any) -> None:
    labels = QUEUE | ({"kueue.x-k8s.io/priority-class": priority_class} if priority_class else {})
    world.create(*pools(), name=name, labels=labels, **spec)


def pods_of(world: World, job: str) -> dict[str, dict[str, Any]]:
    return {name: pod for name, pod in world.pods().items() if pod["metadata"]["labels"]["hetccl.io/job-name"] == job}


def complete(world: World, job: str) -> None:
    for name in pods_of(world, job):
        note = {"annotations": {"kwok.x-k8s.io/complete": "true"}}
        world.api.merge(f"/api/v1/namespaces/{world.namespace}/pods/{name}", {"metadata": note})


def fail(world: World, pod: str) -> None:
    note = {"labels": {"pod-container-running-failed.stage.kwok.x-k8s.io": "true"}}
    world.api.merge(f"/api/v1/namespaces/{world.namespace}/pods/{pod}", {"metadata": note})


def test_of_two_jobs_of_both_vendors_one_runs_whole_and_the_other_after_it(queue: World) -> None:
    create(queue, "one")
    queue.until_state("Running", "one")
    create(queue, "two", activeDeadlineSeconds=3600)
    queue.until_state("Suspended", "two")
    queue.until(
        "what is missing is named with its pool",
        lambda: (
            "pool nvidia: insufficient unused quota for nvidia.com/gpu"
            in queue.condition("Suspended", "two")["message"]
        ),
    )
    assert "startTime" not in queue.status("two")
    assert queue.status("two")["pools"][0]["ready"] == 0
    placed = {pod["spec"]["nodeSelector"]["hetccl.io/vendor"] for pod in pods_of(queue, "one").values()}
    assert placed == {"nvidia", "amd"}
    complete(queue, "one")
    queue.until_state("Complete", "one")
    queue.until_state("Running", "two")
    assert queue.status("two")["startTime"] >= queue.condition("Suspended", "two")["lastTransitionTime"]
    for pod in pods_of(queue, "one").values():
        assert not pod["metadata"].get("finalizers"), "Kueue lets the pods of a finished group go"


def test_a_preempted_job_goes_whole_and_comes_back_whole(queue: World) -> None:
    create(queue, "poor", LOW)
    queue.until_state("Running", "poor")
    create(queue, "rich", HIGH)
    queue.until("the reason is shown", lambda: queue.condition("Suspended", "poor")["reason"].endswith("Preempted"))
    assert "Preempted to accommodate" in queue.condition("Suspended", "poor")["message"]
    queue.until_state("Running", "rich")
    queue.until("a new group waits", lambda: set(pods_of(queue, "poor")) == {f"poor-1-{p}" for p in MEMBERS})
    assert all(pod["spec"]["schedulingGates"] for pod in pods_of(queue, "poor").values())
    complete(queue, "rich")
    queue.until_state("Running", "poor")
    status = queue.status("poor")
    assert (status["attempt"], status["restarts"]) == (1, 0)


def test_a_failed_gang_is_queued_anew_though_kueue_holds_its_last_pods(queue: World) -> None:
    create(queue, "job", failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    queue.until_state("Running")
    fail(queue, "job-0-amd-0000")
    queue.until("a new gang runs", lambda: queue.status()["attempt"] == 1 and queue.status()["state"] == "Running")
    queue.until_pods(*(f"job-1-{member}" for member in MEMBERS))


def test_a_failed_job_gives_its_quota_back_and_keeps_the_failed_pod_for_its_logs(queue: World) -> None:
    create(queue, "one")
    queue.until_state("Running", "one")
    fail(queue, "one-0-nvidia-0001")
    queue.until_state("Failed", "one")
    create(queue, "two")
    queue.until_state("Running", "two")
    assert list(pods_of(queue, "one")) == ["one-0-nvidia-0001"]


@pytest.mark.parametrize("state", ["Running", "Suspended"])
def test_suspend_and_deletion_leave_no_pod_to_kueue(queue: World, state: str) -> None:
    if state == "Suspended":
        create(queue, "other")
        queue.until_state("Running", "other")
    create(queue, "job")
    queue.until_state(state)
    queue.until("the gang is there", lambda: len(pods_of(queue, "job")) == len(MEMBERS))
    queue.change(suspend=True)
    queue.until("the pods are gone", lambda: not pods_of(queue, "job"))
    assert queue.condition("Suspended")["reason"] == "SuspendedByUser"
    queue.change(suspend=False)
    queue.until("a new gang is there", lambda: len(pods_of(queue, "job")) == len(MEMBERS))
    queue.api("DELETE", f"{queue.jobs}/job")
    queue.until("nothing is left", lambda: not pods_of(queue, "job"))


def test_a_job_whose_workload_was_deactivated_stays_out_of_the_queue(queue: World) -> None:
    create(queue, "job")
    queue.until_state("Running")
    (workload,) = queue.api.items(f"{KUEUE}/namespaces/{queue.namespace}/workloads")
    path = f"{KUEUE}/namespaces/{queue.namespace}/workloads/{workload['metadata']['name']}"
    queue.api.merge(path, {"spec": {"active": False}})
    queue.until("the job is out", lambda: "stays out" in queue.condition("Suspended").get("message", ""))
    queue.until("the pods are gone", lambda: not queue.pods())
    assert queue.condition("Suspended")["reason"] == "WorkloadEvictedDueToDeactivated"
    queue.api.merge(f"{queue.jobs}/job", {"metadata": {"annotations": {"hetccl.io/restart": "1"}}})
    queue.until_state("Running")


def test_a_queue_that_does_not_exist_is_named(queue: World) -> None:
    queue.create(*pools(), scheduling={"queue": "typo"})
    queue.until("the queue is named", lambda: "typo" in queue.condition("Suspended").get("message", ""))
    queue.until("Kueue's words are there", lambda: "doesn't exist" in queue.condition("Suspended")["message"])
