"""What the webhook says of a job, and how it keeps its certificate."""

import asyncio
import base64
import copy
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hettrain.admission.certificates import LIFETIME, Pair, is_usable, make, merge_bundle
from hettrain.admission.review import Reviewer
from hettrain.admission.rotation import Names, Rotation
from hettrain.kube import ApiError, Unreachable

from tests.unit.hettrain.documents import CONTEXT, document, pool

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOST = "hettrain-webhook.system.svc"
NAMES = Names("system", "hettrain-webhook", "system-hettrain", HOST)


class Cluster:
    """An API server of dictionaries. `refuse`: what it answers to a pod."""

    def __init__(
        self, *nodes: dict[str, Any], refuse: Callable[[dict[str, Any]], Exception | None] = lambda _: None
    ) -> None:
        self.nodes, self.refuse = nodes, refuse
        self.tried: list[dict[str, Any]] = []
        self.dropped: set[str] = set()
        self.objects: dict[tuple[str, str | None, str], dict[str, Any]] = {
            ("Secret", "system", "hettrain-webhook"): {"kind": "Secret", "metadata": {"name": "hettrain-webhook"}},
            ("ValidatingWebhookConfiguration", None, "system-hettrain"): {
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "system-hettrain"},
                "webhooks": [{"name": "jobs", "clientConfig": {}}],
            },
        }
        self.written: list[str] = []

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any]:
        if (kind, namespace, name) not in self.objects:
            raise ApiError(404, {"reason": "NotFound"})
        return copy.deepcopy(self.objects[kind, namespace, name])

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        place = next(at for at in self.objects if (at[0], at[2]) == (manifest["kind"], manifest["metadata"]["name"]))
        self.objects[place] = copy.deepcopy(manifest)
        self.written.append(manifest["kind"])
        return manifest

    async def list_all(self, kind: str) -> list[dict[str, Any]]:
        return list(self.nodes)

    async def create(self, manifest: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        assert dry_run
        self.tried.append(manifest)
        if error := self.refuse(manifest):
            raise error
        return {**manifest, "spec": {k: v for k, v in manifest.get("spec", {}).items() if k not in self.dropped}}

    @property
    def trusted(self) -> bytes:
        hook = self.objects["ValidatingWebhookConfiguration", None, "system-hettrain"]["webhooks"][0]
        return base64.b64decode(hook["clientConfig"]["caBundle"])

    @property
    def pair(self) -> Pair:
        data = self.objects["Secret", "system", "hettrain-webhook"]["data"]
        return Pair(base64.b64decode(data["tls.crt"]), base64.b64decode(data["tls.key"]))


def node(labels: dict[str, str] | None = None, **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels or {}},
        "status": {"allocatable": {f"{k}.com/gpu": v for k, v in allocatable.items()}},
    }


def answer(cluster: Cluster, job: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    request = {"uid": "asked", "object": job, "oldObject": before}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answered = asyncio.run(Reviewer(cluster, CONTEXT).answer(review))  # type: ignore[arg-type]
    assert (answered["apiVersion"], answered["kind"]) == (review["apiVersion"], review["kind"])
    response: dict[str, Any] = answered["response"]
    assert response["uid"] == "asked"
    return response


def versioned(name: str = "nvidia", image: str = "user/image:1", **changes: Any) -> dict[str, Any]:
    spec = changes.pop("spec", {})
    template = {"spec": {"containers": [{"name": "trainer", "image": image, "command": ["torchrun"]}], **spec}}
    return pool(name, template=template, **changes)


def test_a_sound_job_passes_without_a_word() -> None:
    cluster = Cluster(node(nvidia="8"), node(amd="8"))
    job = document(versioned(gpusPerReplica=8), versioned("amd", vendor="amd"))
    assert answer(cluster, job) == {"uid": "asked", "allowed": True}
    assert [pod["metadata"]["labels"]["hetccl.io/pool"] for pod in cluster.tried] == ["nvidia", "amd"]


def test_pods_are_tried_under_names_that_cannot_be_taken_and_without_an_owner() -> None:
    cluster = Cluster()
    answer(cluster, document(versioned(replicas=3)))
    (pod,) = cluster.tried
    assert "name" not in pod["metadata"]
    assert pod["metadata"]["generateName"].startswith("job-0-nvidia-0000")
    assert "ownerReferences" not in pod["metadata"]


def test_pods_that_can_never_be_made_refuse_the_job_with_the_pools_name() -> None:
    cluster = Cluster(refuse=lambda pod: ApiError(422, {"reason": "Invalid", "message": f"bad {pod['kind']}"}))
    response = answer(cluster, document(versioned()))
    assert not response["allowed"]
    assert response["status"]["message"] == "pool nvidia: the API server refuses its pods: bad Pod"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ApiError(403, {"reason": "Forbidden", "message": "exceeded quota: team"}), "exceeded quota"),
        (ApiError(500, {"message": "a broken webhook of somebody else"}), "a broken webhook"),
        (Unreachable("POST: timed out"), "could not be tried"),
    ],
)
def test_what_may_become_right_by_itself_is_a_warning(error: Exception, said: str) -> None:
    response = answer(Cluster(refuse=lambda _: error), document(versioned()))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert said in warning
    assert warning.startswith("pool nvidia: ")


@pytest.mark.parametrize(
    ("image", "warned"),
    [
        ("user/image", True),
        ("user/image:latest", True),
        ("registry.test:5000/user/image", True),
        ("user/image:2", False),
        ("registry.test:5000/user/image:2", False),
        (f"user/image@sha256:{'0' * 64}", False),
    ],
)
def test_an_image_that_may_change_is_warned_of(image: str, warned: bool) -> None:
    warnings = answer(Cluster(), document(versioned(image=image))).get("warnings", [])
    assert any("may change between restarts" in warning for warning in warnings) is warned


def test_gpus_that_nobody_asks_for_are_warned_of() -> None:
    (warning,) = answer(Cluster(), document(versioned(gpusPerReplica=None, nprocPerNode=2)))["warnings"]
    assert "nothing asks for a GPU" in warning
    assert "nvidia.com/gpu" in warning
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]}
    assert "warnings" not in answer(Cluster(), document(versioned(gpusPerReplica=None, nprocPerNode=2, spec=claims)))


def test_a_pool_that_no_node_could_ever_hold_is_warned_of() -> None:
    cluster = Cluster(node({"zone": "a"}, nvidia="4"), node({"zone": "b"}, nvidia="8"), node(amd="8"))
    (warning,) = answer(cluster, document(versioned(gpusPerReplica=16)))["warnings"]
    assert "16 nvidia.com/gpu" in warning
    assert "more than 8" in warning
    here = {"nodeSelector": {"zone": "a"}}
    (warning,) = answer(cluster, document(versioned(gpusPerReplica=8, spec=here)))["warnings"]
    assert "more than 4" in warning
    (warning,) = answer(cluster, document(versioned(spec={"nodeSelector": {"zone": "c"}})))["warnings"]
    assert "no node of the cluster has the labels zone=c" in warning


def queue(cluster: Cluster, quota: int = 8, stop: str = "None", **cluster_queue: Any) -> Cluster:
    """A LocalQueue `team` with a quota of so many GPUs of either vendor."""
    groups = [
        {
            "coveredResources": [f"{vendor}.com/gpu"],
            "flavors": [{"name": vendor, "resources": [{"name": f"{vendor}.com/gpu", "nominalQuota": str(quota)}]}],
        }
        for vendor in ("nvidia", "amd")
    ]
    spec = {"resourceGroups": groups, "stopPolicy": stop, **cluster_queue}
    cluster.objects["LocalQueue", "team", "team"] = {"kind": "LocalQueue", "spec": {"clusterQueue": "gpus"}}
    cluster.objects["ClusterQueue", None, "gpus"] = {"kind": "ClusterQueue", "spec": spec}
    return cluster


QUEUED = document(versioned(replicas=2, gpusPerReplica=4), versioned("amd", vendor="amd"), scheduling={"queue": "team"})


def test_a_queue_that_can_take_the_job_says_nothing() -> None:
    assert "warnings" not in answer(queue(Cluster()), QUEUED)


def test_a_queue_that_does_not_exist_is_warned_of() -> None:
    (warning,) = answer(Cluster(), QUEUED)["warnings"]
    assert "no LocalQueue team in namespace team" in warning
    cluster = queue(Cluster())
    del cluster.objects["ClusterQueue", None, "gpus"]
    (warning,) = answer(cluster, QUEUED)["warnings"]
    assert "ClusterQueue gpus, which does not exist" in warning


def test_more_gpus_than_a_queue_has_in_all_are_warned_of_unless_it_can_borrow() -> None:
    (warning,) = answer(queue(Cluster(), quota=7), QUEUED)["warnings"]
    assert "the job asks for 8 nvidia.com/gpu, and ClusterQueue gpus has 7 in all" in warning
    assert "warnings" not in answer(queue(Cluster(), quota=7, cohortName="all"), QUEUED)


def test_a_stopped_queue_is_warned_of() -> None:
    (warning,) = answer(queue(Cluster(), stop="Hold"), QUEUED)["warnings"]
    assert "ClusterQueue gpus is stopped" in warning


def test_a_resource_that_a_queue_does_not_cover_is_warned_of() -> None:
    asks = document(versioned(rdma={"resourceName": "rdma/hca"}), scheduling={"queue": "team"})
    (warning,) = answer(queue(Cluster()), asks)["warnings"]
    assert warning.startswith("pool nvidia: no resource group of ClusterQueue gpus covers rdma/hca")


def test_more_pools_than_kueue_takes_refuse_a_job_that_a_label_puts_into_a_queue() -> None:
    many = document(*(versioned(f"p{i}") for i in range(9)))
    many["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    response = answer(Cluster(), many)
    assert not response["allowed"]
    assert "at most 8" in response["status"]["message"]


def test_a_gang_scheduler_that_the_cluster_does_not_have_is_warned_of() -> None:
    gone = Cluster(refuse=lambda tried: ApiError(404, {}) if tried["kind"] == "PodGroup" else None)
    (warning,) = answer(gone, document(versioned(), scheduling={"gang": "Volcano"}))["warnings"]
    assert "podgroups.scheduling.volcano.sh" in warning
    dropping = Cluster()
    dropping.dropped = {"schedulingGroup"}
    pools = (versioned(), versioned("amd", vendor="amd"))
    (warning,) = answer(dropping, document(*pools, scheduling={"gang": "Kubernetes"}))["warnings"]
    assert "GenericWorkload" in warning
    assert "warnings" not in answer(Cluster(), document(*pools, scheduling={"gang": "Kubernetes"}))


def test_a_missing_profile_is_a_warning_since_it_may_come_later() -> None:
    response = answer(Cluster(), document(versioned(profile="ib")))
    assert response["allowed"]
    assert "HetPoolProfile ib" in response["warnings"][0]


def test_changes_that_are_not_of_the_spec_are_not_looked_at() -> None:
    cluster = Cluster(refuse=lambda _: ApiError(422, {"message": "bad"}))
    job = document(versioned())
    assert answer(cluster, job, before=copy.deepcopy(job))["allowed"]
    assert not cluster.tried
    leaving = document(versioned())
    leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert answer(cluster, leaving)["allowed"]


def test_what_the_crd_refuses_is_left_to_the_crd() -> None:
    assert answer(Cluster(), document(versioned(replicas=0)))["allowed"]


def test_a_certificate_is_good_for_its_host_until_a_month_before_its_end() -> None:
    pair = make(HOST, NOW)
    assert is_usable(pair, HOST, NOW)
    assert is_usable(pair, HOST, NOW + LIFETIME - timedelta(days=31))
    assert not is_usable(pair, HOST, NOW + LIFETIME - timedelta(days=29))
    assert not is_usable(pair, "another.system.svc", NOW)
    assert not is_usable(Pair(pair.certificate, make(HOST, NOW).key), HOST, NOW)
    assert not is_usable(Pair(b"", b""), HOST, NOW)
    assert not is_usable(Pair(b"garbage", pair.key), HOST, NOW)


def test_the_bundle_keeps_what_is_still_served_and_drops_what_has_ended() -> None:
    old, recent, newest = (make(HOST, NOW - age).certificate for age in (2 * LIFETIME, LIFETIME / 2, timedelta()))
    bundle = merge_bundle(newest, merge_bundle(recent, old, NOW - 1.5 * LIFETIME), NOW)
    assert bundle == newest + recent
    assert merge_bundle(newest, bundle, NOW) == bundle
    assert merge_bundle(newest, b"garbage", NOW) == newest


def test_trust_is_set_up_once_and_a_foreign_bundle_is_replaced() -> None:
    async def look_thrice() -> Cluster:
        cluster = Cluster()
        rotation = Rotation(cluster, NAMES)  # type: ignore[arg-type]
        await rotation.look()
        assert rotation.ready.is_set()
        assert cluster.trusted == cluster.pair.certificate
        await rotation.look()
        assert cluster.written == ["Secret", "ValidatingWebhookConfiguration"]
        hook = cluster.objects["ValidatingWebhookConfiguration", None, "system-hettrain"]["webhooks"][0]
        hook["clientConfig"]["caBundle"] = base64.b64encode(make("stranger", NOW).certificate).decode()
        await rotation.look()
        return cluster

    cluster = asyncio.run(look_thrice())
    assert cluster.trusted == cluster.pair.certificate


def test_a_certificate_near_its_end_is_replaced_and_the_old_one_still_trusted() -> None:
    async def rotate() -> None:
        cluster = Cluster()
        old = make(HOST, datetime.now(UTC), timedelta(days=10))
        cluster.objects["Secret", "system", "hettrain-webhook"]["data"] = {
            "tls.crt": base64.b64encode(old.certificate).decode(),
            "tls.key": base64.b64encode(old.key).decode(),
            "ca.crt": base64.b64encode(old.certificate).decode(),
        }
        rotation = Rotation(cluster, NAMES)  # type: ignore[arg-type]
        await rotation.look()
        assert cluster.trusted == cluster.pair.certificate + old.certificate
        assert isinstance(rotation.context, ssl.SSLContext)

    asyncio.run(rotate())
