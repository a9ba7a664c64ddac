"""The operator's process against the real API server; tests play user and kubelet."""

import base64
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from hettrain.api.job import REPORT_PORT

from tests.cluster.cluster import Cluster
from tests.integration.hettrain.api_server import CRDS, ApiServer, Refused
from tests.integration.hettrain.world import World
from tests.unit.hettrain.documents import pool

FIRST = ("job-0-nvidia-0000", "job-0-amd-0000")
KEPT = ("uid", "ownerReferences", "labels", "deletionTimestamp")
SECOND = ("job-1-nvidia-0000", "job-1-amd-0000")


def start(world: World, **spec: object) -> None:
    world.create(**spec)
    world.until_pods(*FIRST)
    world.run()
    world.until_state("Running")


def test_a_job_runs_to_its_end(world: World) -> None:
    start(world)
    assert world.status()["worldSize"] == 2
    for pod in FIRST:
        world.end(pod)
    world.until_state("Complete")
    status = world.status()
    assert [found["completedIndexes"] for found in status["pools"]] == ["0", "0"]
    assert status["observedGeneration"] == 1
    assert status["completionTime"]
    world.until("events tell the story", lambda: {"Started", "Running", "Complete"} <= {r for r, _ in world.events()})
    assert set(world.pods()) == set(FIRST)


def test_the_operator_puts_neither_finalizers_nor_annotations_on_anything(world: World, api: ApiServer) -> None:
    start(world)
    objects = [world.job(), *world.pods().values()]
    objects += api.items(f"/api/v1/namespaces/{world.namespace}/services")
    objects += api.items(f"/api/v1/namespaces/{world.namespace}/secrets")
    for found in objects:
        assert not found["metadata"].get("finalizers"), found
        assert not found["metadata"].get("annotations"), found


def test_suspend_deletes_the_pods_and_resume_starts_over(world: World) -> None:
    start(world)
    world.change(suspend=True)
    world.until_pods()
    world.until_state("Suspended")
    world.change(suspend=False)
    world.until_pods(*SECOND)
    world.run()
    world.until_state("Running")
    assert world.status()["restarts"] == 0
    assert world.condition("Suspended")["status"] == "False"


def test_a_failed_pod_restarts_the_gang_until_the_budget_is_spent(world: World) -> None:
    start(world, failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    world.end(FIRST[1], 3, message="Traceback: first")
    world.until_pods(*SECOND)
    assert world.status()["restarts"] == 1
    assert world.status()["firstFailure"]["traceback"] == "Traceback: first"
    world.run()
    world.end(SECOND[0], 137, reason="OOMKilled")
    world.until_state("Failed")
    world.until_pods(SECOND[0])
    failure = world.status()["firstFailure"]
    assert (failure["pod"], failure["reason"], failure["exitCode"]) == (SECOND[0], "OOMKilled", 137)
    assert "after 1 of 1 restarts" in world.condition("Failed")["message"]


def test_a_deleted_pod_restarts_the_gang_uncounted(world: World) -> None:
    start(world)
    world.delete_pod(FIRST[0])
    world.until_pods(*SECOND)
    world.until("the status says so", lambda: world.status()["attempt"] == 1)
    assert world.status()["restarts"] == 0


def test_each_attempt_has_a_token_of_its_own(world: World, api: ApiServer) -> None:
    def secrets() -> dict[str, str]:
        found = api.items(f"/api/v1/namespaces/{world.namespace}/secrets?labelSelector=hetccl.io/job-name=job")
        return {secret["metadata"]["name"]: secret["data"]["token"] for secret in found}

    start(world, failurePolicy={"maxRestarts": 1})
    first = secrets()
    world.end(FIRST[0], 1)
    world.until_pods(*SECOND)
    second = secrets()
    assert (list(first), list(second)) == (["job-0-token"], ["job-1-token"])
    assert first["job-0-token"] != second["job-1-token"]


@pytest.mark.parametrize(
    ("path", "manifest"),
    [
        ("services", {"metadata": {"name": "job"}, "spec": {"ports": [{"port": 80}]}}),
        ("secrets", {"metadata": {"name": "job-0-token"}}),
        ("pods", {"metadata": {"name": FIRST[1]}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    ],
    ids=["services", "secrets", "pods"],
)
def test_a_name_of_somebody_elses_object_blocks_the_job_and_leaves_that_object_alone(
    world: World, api: ApiServer, path: str, manifest: dict[str, object]
) -> None:
    collection = f"/api/v1/namespaces/{world.namespace}/{path}"
    theirs = api("POST", collection, manifest)
    world.create()
    world.until("the job is blocked", lambda: world.condition("Blocked").get("reason") == "NameTaken")
    assert theirs["metadata"]["name"] in world.condition("Blocked")["message"]
    item = f"{collection}/{theirs['metadata']['name']}"
    now = api("GET", item)
    assert [now["metadata"].get(key) for key in KEPT] == [theirs["metadata"].get(key) for key in KEPT]
    assert now.get("spec") == theirs.get("spec")
    api("DELETE", item)
    world.until_pods(*FIRST)
    world.until("the job is not blocked by it", lambda: world.condition("Blocked").get("reason") != "NameTaken")


def test_a_job_deleted_while_its_pods_start_leaves_nothing(world: World, api: ApiServer) -> None:
    world.create(pool(replicas=20, rdma={"ibHca": "mlx5"}))
    world.until("pods appear", world.pods)
    api("DELETE", f"{world.jobs}/job")
    world.until("the job is gone", lambda: not api.items(world.jobs))
    world.until("everything is gone", lambda: not world.left_behind(), 40)


def test_a_name_used_again_at_once_gets_pods_of_the_new_job(world: World, api: ApiServer) -> None:
    start(world)
    old = {pod["metadata"]["uid"] for pod in world.pods().values()}
    api("DELETE", f"{world.jobs}/job")
    world.until("the job is gone", lambda: not api.items(world.jobs))
    world.create()
    world.until(
        "new pods",
        lambda: set(world.pods()) == set(FIRST) and not old & {u["metadata"]["uid"] for u in world.pods().values()},
        40,
    )
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in world.pods().values()} == {
        world.job()["metadata"]["uid"]
    }


def test_a_pod_that_no_node_has_room_for_blocks_the_job(world: World, control_plane: Cluster) -> None:
    control_plane.add_simulated_nodes(2)
    template = {
        "spec": {
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "nodeSelector": {"type": "kwok"},
            "containers": [{"name": "trainer", "image": "i"}],
        }
    }
    pools = [
        pool(gpusPerReplica=1, template=template),
        pool("amd", vendor="amd", gpusPerReplica=9, template=template),
    ]
    world.create(*pools)
    # A simulated node that has just been added is not ready at first, and that is said first.
    world.until(
        "the pool and the resource are named",
        lambda: "not enough amd.com/gpu:" in world.condition("Blocked").get("message", ""),
        60,
    )
    assert "pool amd" in world.condition("Blocked").get("message", "")
    assert world.condition("Blocked")["reason"] == "Unschedulable"


def test_a_pod_that_the_api_server_refuses_blocks_the_job_with_its_words(world: World) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "imagePullPolicy": "Sometimes"}]}}
    world.create(pool(template=template))
    world.until("the job is blocked", lambda: world.condition("Blocked").get("reason") == "Invalid")
    assert "imagePullPolicy" in world.condition("Blocked")["message"]


def test_a_quota_that_is_too_small_blocks_the_job_until_it_is_raised(world: World, api: ApiServer) -> None:
    quotas = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    api("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    world.until("the quota counts", lambda: api("GET", f"{quotas}/q").get("status", {}).get("used"))
    world.create()
    world.until("the job is blocked", lambda: "exceeded quota" in world.condition("Blocked").get("message", ""))
    api("DELETE", f"{quotas}/q")
    world.until_pods(*FIRST)


def test_a_job_of_another_controller_is_never_touched(world: World) -> None:
    world.create(name="theirs", managedBy="example.com/other")
    world.create()
    world.until_pods(*FIRST)
    assert "status" not in world.job("theirs")


def test_a_profile_that_appears_late_starts_the_job(world: World, api: ApiServer) -> None:
    name = f"profile-{world.namespace}"
    world.create(pool(profile=name))
    world.until("the job is blocked", lambda: world.condition("Blocked").get("reason") == "ProfileNotFound")
    profile = {
        "apiVersion": "hetccl.io/v1alpha1",
        "kind": "HetPoolProfile",
        "metadata": {"name": name},
        "spec": {"vendor": "nvidia", "nccl": {"NCCL_IB_TC": "106"}, "nodeSelector": {"gpu": "h100"}},
    }
    api("POST", "/apis/hetccl.io/v1alpha1/hetpoolprofiles", profile)
    world.until_pods(FIRST[0])
    assert world.pods()[FIRST[0]]["spec"]["nodeSelector"] == {"gpu": "h100"}
    variables = api("GET", f"/api/v1/namespaces/{world.namespace}/configmaps/job-0-nvidia-nccl")
    assert variables["data"] == {"NCCL_IB_TC": "106"}
    api("DELETE", f"/apis/hetccl.io/v1alpha1/hetpoolprofiles/{name}")


def test_image_volumes_are_used_where_the_api_server_has_them(world: World) -> None:
    world.create()
    world.until_pods(*FIRST)
    volumes = world.pods()[FIRST[0]]["spec"]["volumes"]
    assert [volume["image"]["reference"] for volume in volumes if "image" in volume] == ["registry.test/hetccl:1"]


@contextmanager
def rank_0(api: ApiServer, namespace: str, *pools: str) -> Iterator[None]:
    """Rank 0 of attempt 0 as hetccl answers for it, at the address that the tests give to every pod."""
    secret = api("GET", f"/api/v1/namespaces/{namespace}/secrets/job-0-token")
    token = base64.b64decode(secret["data"]["token"])
    wanted = f"Bearer {hmac.new(token, b'hetccl report', 'sha256').hexdigest()}"
    ranks = [{"rank": rank, "pool": name, "simulated": True} for rank, name in enumerate(pools)]
    report = {"version": 1, "job": f"{namespace}/job/0", "world_size": len(ranks), "ranks": ranks}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/v1/report" and self.headers["Authorization"] == wanted
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(report).encode() if known else b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", REPORT_PORT), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def test_rank_0s_report_verifies_the_injection(world: World, api: ApiServer) -> None:
    start(world)
    assert world.condition("InjectionVerified")["status"] == "Unknown"
    with rank_0(api, world.namespace, "nvidia", "amd"):
        world.until("it is verified", lambda: world.condition("InjectionVerified")["status"] == "True")
    assert world.condition("InjectionVerified")["message"] == (
        "hetccl runs in pool nvidia: 1 ranks (simulated); pool amd: 1 ranks (simulated)"
    )


def test_a_report_that_lacks_a_pool_says_that_hetccl_is_not_there(world: World, api: ApiServer) -> None:
    start(world)
    with rank_0(api, world.namespace, "nvidia"):
        world.until("it is missed", lambda: world.condition("InjectionVerified")["status"] == "False")
    assert "pool amd: 0 of 1 ranks" in world.condition("InjectionVerified")["message"]


def test_crds_applied_again_under_a_running_job_leave_its_pods(world: World, control_plane: Cluster) -> None:
    start(world)
    before = {name: pod["metadata"]["uid"] for name, pod in world.pods().items()}
    control_plane.kubectl("annotate", "crd", "hettrainingjobs.hetccl.io", f"test={world.namespace}", "--overwrite")
    control_plane.kubectl("apply", "-f", CRDS)
    world.change(failurePolicy={"maxRestarts": 5})
    world.until("the change was seen", lambda: world.status()["observedGeneration"] == 2)
    assert {name: pod["metadata"]["uid"] for name, pod in world.pods().items()} == before


def test_an_idle_operator_writes_nothing(world: World, api: ApiServer) -> None:
    start(world)
    world.until("every event is there", lambda: {"Started", "Running"} <= {reason for reason, _ in world.events()})
    version = world.job()["metadata"]["resourceVersion"]
    marker = "idle"
    world.create(name=marker)
    world.until("another job got its pods", lambda: any(name.startswith(marker) for name in world.pods()))
    assert world.job()["metadata"]["resourceVersion"] == version


def test_a_spec_that_the_api_server_refuses_never_gets_here(world: World) -> None:
    with pytest.raises(Refused):
        world.create(pool(replicas=-1))
