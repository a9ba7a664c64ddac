"""What the real API server thinks of our CRDs: every rule, both ways."""

from typing import Any

import pytest
from hettrain.api import InvalidDocument, load

from tests.cluster.cluster import Cluster
from tests.integration.hettrain.api_server import CRDS, JOBS, ApiServer, Refused
from tests.unit.hettrain.broken import BROKEN
from tests.unit.hettrain.documents import document, pool

PROFILES = "/apis/hetccl.io/v1alpha1/hetpoolprofiles"


def create(api: ApiServer, manifest: dict[str, Any], namespace: str = "default", really: bool = False) -> Any:
    manifest = {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}
    dry_run = "" if really else "?dryRun=All&fieldValidation=Strict"
    return api("POST", JOBS.format(namespace) + dry_run, manifest)


def refusal(api: ApiServer, manifest: dict[str, Any]) -> str:
    with pytest.raises(Refused) as refused:
        create(api, manifest)
    assert refused.value.status in (400, 422)
    return refused.value.message


@pytest.mark.parametrize(("bad", "path", "words"), BROKEN, ids=[broken[1] for broken in BROKEN])
def test_a_broken_rule_is_refused_with_the_words_of_validate(
    api: ApiServer, bad: dict[str, Any], path: str, words: str
) -> None:
    with pytest.raises(InvalidDocument) as invalid:
        load(bad)
    assert invalid.value.problems[0].expected in refusal(api, bad)


GOOD = [
    document(),
    document(pool(gpusPerReplica=None, nprocPerNode=2)),
    document(pool(vendor="cpu", gpusPerReplica=None, nprocPerNode=3)),
    document(pool(resourceName="x.com/gpu")),
    document(pool(rdma={"resourceName": "rdma/hca", "count": 2, "ibHca": "mlx5", "gidIndex": 3})),
    document(pool(profile="any", replicas=10000)),
    document(pool("p" * 30), name="j" * 21),
    document(rendezvous={"port": 29601, "timeoutSeconds": 60}, suspend=True, managedBy="hetccl.io/hettrain"),
    document(failurePolicy={"maxRestarts": 3, "backoff": {"initialSeconds": 3, "maxSeconds": 3}}),
    document(
        failurePolicy={
            "rules": [
                {"action": "Fail", "onExitCodes": {"operator": "In", "values": [1, 255]}, "pools": ["amd", "nvidia"]},
                {"action": "RestartIgnoreLimit", "onReasons": ["Error"]},
                {"action": "Restart", "onReasons": ["OOMKilled"]},
            ]
        }
    ),
    document(successPolicy={"operator": "Any", "pools": ["amd"]}),
    document(activeDeadlineSeconds=1, startupDeadlineSeconds=86400),
    document(ttlSecondsAfterFinished=0, cleanPodPolicy="None"),
    document(disruptionBudget="Gang"),
    document(*(pool(f"p{i}") for i in range(8)), scheduling={"queue": "team", "gang": "Kubernetes"}),
    document(*(pool(f"p{i}") for i in range(9)), scheduling={"queue": "team", "gang": "Volcano"}),
    document(scheduling={"gang": "Coscheduling", "schedulerName": "mine", "priorityClassName": "high"}),
    document(pool(topology={"key": "topology.kubernetes.io/rack", "mode": "Pack"})),
    document(elastic={}),
    document(pool(replicas=4, minReplicas=2, maxReplicas=8), elastic={"replicas": 8, "shrinkAfterSeconds": 60}),
    document(hetccl={"delivery": "InitContainer", "transport": "RDMA", "env": [{"name": "A", "value": "b"}]}),
    document(*(pool(f"p{i}") for i in range(16))),
]


@pytest.mark.parametrize("good", GOOD, ids=range(len(GOOD)))
def test_what_validate_accepts_the_api_server_accepts(api: ApiServer, good: dict[str, Any]) -> None:
    load(good)
    create(api, good)


@pytest.mark.parametrize(
    "bad",
    [
        document(pool("Upper")),
        document(pool("9")),
        document(pool(vendor="intel")),
        document(pool(replicas=0)),
        document(pool(replicas="2")),
        document(pool(template={"spec": {"containers": []}})),
        document(pool(template={"spec": {"containers": [{"name": "t"}], "restartPolicy": "OnFailure"}})),
        document(scheduling={"gang": "Slurm"}),
        document(pool(topology={"key": "rack", "mode": "Scatter"})),
        document(failurePolicy={"rules": [{"action": "Explode"}]}),
        document(activeDeadlineSeconds=0),
        document(ttlSecondsAfterFinished=-1),
        document(cleanPodPolicy="Never"),
        document(disruptionBudget="All"),
        document(failurePolicy={"rules": [{"action": "Fail", "onExitCodes": {"operator": "In", "values": []}}]}),
        document(failurePolicy={"rules": [{"action": "Fail", "onExitCodes": {"operator": "In", "values": [0]}}]}),
        document(*(pool(f"p{i}") for i in range(17))),
        {**document(), "spec": {"pools": []}},
    ],
    ids=lambda bad: str(bad["spec"])[:60],
)
def test_what_validate_refuses_the_api_server_refuses(api: ApiServer, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidDocument):
        load(bad)
    refusal(api, bad)


def test_defaults_are_filled_in_as_validate_does(api: ApiServer) -> None:
    stored = create(api, document())
    stored["status"] = {}
    assert load(stored).spec == load(document()).spec
    assert stored["spec"]["rendezvous"] == {"port": 29500}


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"rendezvous": {"port": 30000}}, "rendezvous cannot be changed"),
    ({"hetccl": {"simulate": True}}, "hetccl cannot be changed"),
    ({"successPolicy": {"operator": "Any"}}, "successPolicy cannot be changed"),
    ({"disruptionBudget": "Gang"}, "disruptionBudget cannot be changed"),
    ({"scheduling": {"queue": "other"}}, "scheduling cannot be changed"),
    ({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy cannot be changed"),
    ({"pools": [pool(replicas=3), pool("amd", vendor="amd")]}, "pools cannot be changed"),
    ({"pools": [pool(), pool("amd", vendor="amd"), pool("more")]}, "pools cannot be changed"),
]


@pytest.fixture
def stored(api: ApiServer, namespace: str) -> str:
    create(api, document(), namespace, really=True)
    return JOBS.format(namespace) + "/job"


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_what_may_not_change_is_refused(api: ApiServer, stored: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        api.merge(stored, {"spec": change})


def test_a_pod_template_may_not_change_even_where_the_crd_does_not_declare_it(api: ApiServer, stored: str) -> None:
    pools = [pool(), pool("amd", vendor="amd")]
    pools[1]["template"]["spec"]["nodeSelector"] = {"zone": "b"}
    with pytest.raises(Refused, match="pools cannot be changed"):
        api.merge(stored, {"spec": {"pools": pools}})


def test_what_may_change_is_accepted(api: ApiServer, stored: str) -> None:
    api.merge(stored, {"spec": {"suspend": True, "failurePolicy": {"maxRestarts": 9}}})
    api.merge(stored, {"spec": {"suspend": False, "failurePolicy": {"maxRestarts": 0}}})
    api.merge(stored, {"spec": {"activeDeadlineSeconds": 60, "startupDeadlineSeconds": 60}})
    api.merge(stored, {"spec": {"ttlSecondsAfterFinished": 5, "cleanPodPolicy": "All"}})
    api.merge(stored, {"spec": {"activeDeadlineSeconds": None, "startupDeadlineSeconds": None}})


def test_a_template_is_kept_whole(api: ApiServer) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "t", "image": "i", "resources": {"limits": {"cpu": 1}}, "ports": [{"x": "y"}]}],
        },
    }
    assert create(api, document(pool(template=template)))["spec"]["pools"][0]["template"] == template


def test_profiles_are_cluster_wide_and_take_nccl_variables_only(api: ApiServer) -> None:
    profile = {
        "apiVersion": "hetccl.io/v1alpha1",
        "kind": "HetPoolProfile",
        "metadata": {"name": "h100"},
        "spec": {
            "vendor": "nvidia",
            "nccl": {"NCCL_IB_TC": "106"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "supplementalGroups": [44],
        },
    }
    stored = api("POST", f"{PROFILES}?dryRun=All&fieldValidation=Strict", profile)
    assert stored["spec"] == profile["spec"]


def test_kubectl_shows_the_columns_by_the_short_name(control_plane: Cluster, api: ApiServer, stored: str) -> None:
    namespace = stored.split("/")[5]
    status = {"state": "Running", "restarts": 2, "summary": {"pools": "nvidia:1 amd:1", "ready": "2/2"}}
    api.merge(f"{stored}/status", {"status": status})
    header, row = control_plane.kubectl("get", "htj", "--namespace", namespace).splitlines()
    assert header.split() == ["NAME", "STATE", "POOLS", "READY", "RESTARTS", "AGE"]
    assert row.split()[:6] == ["job", "Running", "nvidia:1", "amd:1", "2/2", "2"]


def test_a_crd_applied_again_changes_nothing(control_plane: Cluster, api: ApiServer) -> None:
    answer = control_plane.kubectl("apply", "-f", CRDS)
    assert answer.count("unchanged") == 2
