"""Gang schedulers: Kubernetes' own for real, on simulated nodes; of Volcano and coscheduling the objects alone."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster, running_cluster
from tests.cluster.processes import poll
from tests.integration.hettrain.api_server import CRDS, ApiServer
from tests.integration.hettrain.chart_role import NAMESPACE, chart_kubeconfig
from tests.integration.hettrain.conftest import operator
from tests.integration.hettrain.pod_groups import COSCHEDULING, VOLCANO
from tests.integration.hettrain.world import World
from tests.unit.hettrain.documents import pool

GATE, API = "GenericWorkload=true", "scheduling.k8s.io/v1beta1=true"
KUBERNETES = {"gang": "Kubernetes"}
GANG = 3


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler that knows gangs, four simulated nodes of 8 GPUs, and an operator that has the chart's rights."""
    log = tmp_path_factory.mktemp("operator") / "log"
    try:
        with running_cluster(feature_gates=GATE, runtime_config=API) as cluster:
            cluster.add_simulated_nodes(4)
            cluster.kubectl("apply", "-f", CRDS)
            with operator(cluster, log, f"--lease-namespace={NAMESPACE}", kubeconfig=chart_kubeconfig(cluster)):
                poll("the operator holds its Lease", lambda: b"holds the Lease" in log.read_bytes(), 30)
                yield cluster
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def room(gated: Cluster) -> World:
    """A namespace of it; one gang of these tests fits, two do not."""
    name = f"test-{secrets.token_hex(4)}"
    gated.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return World(ApiServer(gated.kubeconfig), name)


def pools(gpus: int = 6) -> list[dict[str, Any]]:
    template = {
        "spec": {
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "trainer", "image": "i"}],
        }
    }
    return [
        pool(replicas=2, gpusPerReplica=gpus, template=template),
        pool("amd", vendor="amd", gpusPerReplica=gpus, template=template),
    ]


def placed(world: World, job: str) -> int:
    mine = (pod for pod in world.pods().values() if pod["metadata"]["labels"]["hetccl.io/job-name"] == job)
    return sum("nodeName" in pod["spec"] for pod in mine)


def test_of_two_jobs_of_which_one_fits_the_other_never_starts_in_part(room: World) -> None:
    names = ("one", "two")
    for name in names:
        room.create(*pools(), name=name, scheduling=KUBERNETES)
    room.until("one runs", lambda: "Running" in [room.status(name).get("state") for name in names])
    first, second = sorted(names, key=lambda name: room.status(name).get("state") != "Running")
    room.until("the other says what is missing", lambda: "not enough nvidia.com/gpu" in blocked(room, second))
    assert "pool nvidia" in blocked(room, second)
    assert (placed(room, first), placed(room, second)) == (GANG, 0)
    room.change(first, suspend=True)

    def waits_or_runs() -> bool:
        running = room.status(second).get("state") == "Running"
        if not running and placed(room, first) == GANG:
            assert placed(room, second) == 0
        return running

    room.until("the other follows", waits_or_runs, 60)
    assert placed(room, second) == GANG


def blocked(world: World, job: str) -> str:
    message: str = world.condition("Blocked", job).get("message", "")
    return message


def test_a_gang_of_kubernetes_own_is_made_anew_with_each_attempt_and_goes_with_the_job(room: World) -> None:
    groups = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{room.namespace}/podgroups"
    room.create(*pools(1), scheduling=KUBERNETES, failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    room.until_state("Running")
    note = {"labels": {"pod-container-running-failed.stage.kwok.x-k8s.io": "true"}}
    room.api.merge(f"/api/v1/namespaces/{room.namespace}/pods/job-0-amd-0000", {"metadata": note})
    room.until("the next attempt runs", lambda: room.status()["attempt"] == 1 and room.status()["state"] == "Running")
    room.until(
        "the first attempt's group is gone",
        lambda: [group["metadata"]["name"] for group in room.api.items(groups)] == ["job-1"],
    )
    (group,) = room.api.items(groups)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": GANG}}
    room.change(suspend=True)
    room.until("its group is gone", lambda: not room.api.items(groups))


def test_kubernetes_own_gang_is_refused_where_its_feature_gate_is_off(world: World) -> None:
    world.create(*pools(), scheduling=KUBERNETES)
    world.until("it is said", lambda: world.condition("Blocked").get("reason") == "SchedulerMissing")
    assert "GenericWorkload" in world.condition("Blocked")["message"]
    world.until("there is an event", lambda: any(r == "Blocked" and "GenericWorkload" in m for r, m in world.events()))
    assert not world.pods()


@pytest.mark.parametrize(("gang", "crd"), [("Volcano", VOLCANO), ("Coscheduling", COSCHEDULING)])
def test_a_missing_crd_is_named_and_the_job_starts_when_it_is_there(
    world: World, control_plane: Cluster, gang: str, crd: dict[str, Any]
) -> None:
    name, group, version = crd["metadata"]["name"], crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
    world.create(*pools(), scheduling={"gang": gang})
    world.until("it is said", lambda: name in blocked(world, "job"))
    world.until(
        "there is an event", lambda: any(reason == "Blocked" and name in text for reason, text in world.events())
    )
    assert not world.pods()
    control_plane.apply(crd)
    try:
        world.until("the pods are there", lambda: len(world.pods()) == GANG)
        (made,) = world.api.items(f"/apis/{group}/{version}/namespaces/{world.namespace}/podgroups")
        assert (made["metadata"]["name"], made["spec"]["minMember"]) == ("job-0", GANG)
        assert made["metadata"]["ownerReferences"][0]["kind"] == "HetTrainingJob"
        world.change(suspend=True)
        world.until(
            "it goes with the pods",
            lambda: not world.api.items(f"/apis/{group}/{version}/namespaces/{world.namespace}/podgroups"),
        )
    finally:
        control_plane.kubectl("delete", "crd", name)
