"""From a job to its pods: ranks, environment, devices. One test a line of the contract in docs/architecture.md."""

from dataclasses import replace
from typing import Any

import pytest
from hettrain.api import HetTrainingJob, load_profile
from hettrain.plan import Context, members, plan, world_size
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hettrain.documents import CONTEXT, job, pool


def pods(wanted: HetTrainingJob, context: Context = CONTEXT, attempt: int = 0) -> list[dict[str, Any]]:
    return [pod.manifest for pod in plan(wanted, attempt, members(wanted), context).pods]


def trainer(pod: dict[str, Any]) -> dict[str, Any]:
    return pod["spec"]["containers"][0]


def env(pod: dict[str, Any]) -> dict[str, str]:
    entries = trainer(pod)["env"]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)), "a name twice"
    return {entry["name"]: entry.get("value", "") for entry in entries}


def with_trainer(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", "image": "user/image", **fields}]}}


def with_profile(**spec: Any) -> Context:
    document = {
        "apiVersion": "hetccl.io/v1alpha1",
        "kind": "HetPoolProfile",
        "metadata": {"name": "p"},
        "spec": {"vendor": "nvidia", **spec},
    }
    return replace(CONTEXT, profiles={"p": load_profile(document)})


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 8), st.none() | st.integers(1, 9)),
        min_size=1,
        max_size=4,
    )
)
def test_ranks_are_dense_over_pools_of_any_shape(shapes: list[tuple[int, int, int | None]]) -> None:
    pools = [
        pool(f"p{i}", replicas=replicas, gpusPerReplica=gpus, nprocPerNode=nproc)
        for i, (replicas, gpus, nproc) in enumerate(shapes)
    ]
    wanted = job(*pools)
    spec, gang = wanted.spec, members(wanted)
    expected = 0
    for node_rank, member in enumerate(gang):
        assert (member.node_rank, member.first_rank) == (node_rank, expected)
        expected += shapes[spec.pools.index(member.pool)][2] or shapes[spec.pools.index(member.pool)][1]
    assert expected == world_size(wanted)


def test_the_environment_is_the_contract() -> None:
    first, second = pods(job(pool(gpusPerReplica=2), pool("amd", vendor="amd"), hetccl={"transport": "TCP"}), attempt=3)
    assert env(second) == {
        "MASTER_ADDR": "job-3-nvidia-0000.job.team.svc",
        "MASTER_PORT": "29500",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "job-3-nvidia-0000.job.team.svc",
        "PET_MASTER_PORT": "29500",
        "HETCCL_VENDOR": "amd",
        "HETCCL_POOL": "amd",
        "HETCCL_JOB": "team/job/3",
        "HETCCL_TRANSPORT": "TCP",
        "HETCCL_TOKEN_FILE": "/run/hetccl/token",
        "HETCCL_REPORT_PORT": "29600",
        "HETCCL_HOME": "/opt/hetccl",
    }
    assert env(first)["PET_NPROC_PER_NODE"] == "2"
    assert env(first)["MASTER_ADDR"] == env(second)["MASTER_ADDR"]


def test_ranks_are_given_only_where_every_pod_runs_one_process() -> None:
    ones = pods(job())
    assert [(env(pod)["RANK"], env(pod)["LOCAL_RANK"], env(pod)["WORLD_SIZE"]) for pod in ones] == [
        ("0", "0", "2"),
        ("1", "0", "2"),
    ]
    assert all("RANK" not in env(pod) for pod in pods(job(pool(gpusPerReplica=2), pool("amd", vendor="amd"))))


def test_simulation_is_said_only_where_it_is_asked_for() -> None:
    assert "HETCCL_SIMULATE" not in env(pods(job())[0])
    assert env(pods(job(hetccl={"simulate": True}))[0])["HETCCL_SIMULATE"] == "1"


def test_ranks_learn_of_the_load_balance_and_their_pools_weight() -> None:
    assert not any(name.startswith(("HETCCL_BALANCE", "HETCCL_WEIGHT")) for name in env(pods(job())[0]))
    wanted = job(pool(weight=2.5), pool("amd", vendor="amd"), balance={"mode": "Static", "loss": "Sum"})
    first, second = (env(pod) for pod in pods(wanted))
    assert (first["HETCCL_BALANCE"], first["HETCCL_BALANCE_LOSS"], first["HETCCL_WEIGHT"]) == ("Static", "Sum", "2.5")
    assert second["HETCCL_BALANCE"] == "Static"
    assert "HETCCL_WEIGHT" not in second


def test_torchruns_rendezvous_gets_the_jobs_patience() -> None:
    assert env(pods(job(rendezvous={"timeoutSeconds": 77}))[0])["PET_RDZV_CONF"] == "timeout=77"


def test_the_users_env_wins_once_with_a_warning() -> None:
    template = with_trainer(env=[{"name": "MASTER_PORT", "value": "1"}, {"name": "MINE", "value": "$(PET_NODE_RANK)"}])
    wanted = job(pool(template=template))
    planned = plan(wanted, 0, members(wanted), CONTEXT)
    variables = env(planned.pods[0].manifest)
    assert variables["MASTER_PORT"] == "1"
    assert planned.warnings == [
        "pool nvidia: its env sets MASTER_PORT, which the operator sets too: the user's value is used"
    ]
    names = list(variables)
    assert names.index("PET_NODE_RANK") < names.index("MINE"), "so that the user's may refer to it"


def test_the_templates_env_wins_over_the_jobs() -> None:
    template = with_trainer(env=[{"name": "A", "value": "template"}])
    jobs = [{"name": "A", "value": "job"}, {"name": "B", "value": "job"}]
    variables = env(pods(job(pool(template=template), hetccl={"env": jobs}))[0])
    assert (variables["A"], variables["B"]) == ("template", "job")


def test_nccl_variables_come_first_so_that_the_users_sources_win() -> None:
    template = with_trainer(envFrom=[{"configMapRef": {"name": "users"}}])
    wanted = job(pool(profile="p", rdma={"ibHca": "mlx5_0", "gidIndex": 3}, template=template), pool("other"))
    planned = plan(wanted, 2, members(wanted), with_profile(nccl={"NCCL_IB_HCA": "x", "NCCL_IB_TC": "106"}))
    [config] = planned.config_maps
    assert config["data"] == {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "mlx5_0", "NCCL_IB_TC": "106"}
    sources = trainer(planned.pods[0].manifest)["envFrom"]
    assert [source["configMapRef"]["name"] for source in sources] == [config["metadata"]["name"], "users"]
    assert "envFrom" not in trainer(planned.pods[1].manifest), "a pool with nothing to say has no ConfigMap"


@pytest.mark.parametrize(
    ("fields", "profile", "resource"),
    [
        ({"gpusPerReplica": 4}, {}, "nvidia.com/gpu"),
        ({"gpusPerReplica": 4, "vendor": "amd"}, {"vendor": "amd"}, "amd.com/gpu"),
        ({"gpusPerReplica": 4}, {"resourceName": "nvidia.com/mig"}, "nvidia.com/mig"),
        ({"gpusPerReplica": 4, "resourceName": "nvidia.com/own"}, {"resourceName": "nvidia.com/mig"}, "nvidia.com/own"),
    ],
)
def test_gpus_are_asked_for_by_pool_then_profile_then_vendor(
    fields: dict[str, Any], profile: dict[str, Any], resource: str
) -> None:
    [pod] = pods(job(pool(profile="p", **fields)), with_profile(**profile))
    assert trainer(pod)["resources"]["limits"] == {resource: "4"}


def test_a_pool_without_devices_asks_for_none() -> None:
    [pod] = pods(job(pool(vendor="cpu", gpusPerReplica=None)))
    assert "resources" not in trainer(pod)


def test_rdma_brings_its_devices_networks_and_the_right_to_pin_memory() -> None:
    rdma = {"resourceName": "rdma/hca", "networks": ["rail-a", "net/rail-b"]}
    template = with_trainer(securityContext={"capabilities": {"add": ["SYS_PTRACE"]}})
    template["metadata"] = {"annotations": {"k8s.v1.cni.cncf.io/networks": "users"}}
    [pod] = pods(job(pool(rdma=rdma, template=template)))
    assert trainer(pod)["resources"]["limits"] == {"nvidia.com/gpu": "1", "rdma/hca": "1"}
    assert trainer(pod)["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE", "IPC_LOCK"]
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "users,rail-a,net/rail-b"


def test_a_pool_without_rdma_asks_for_no_rights() -> None:
    assert "securityContext" not in trainer(pods(job())[0])


def test_a_pool_overrides_its_profiles_rdma_field_by_field() -> None:
    context = with_profile(rdma={"resourceName": "rdma/hca", "count": 4, "ibHca": "mlx5"})
    wanted = job(pool(profile="p", rdma={"count": 2, "resourceName": "rdma/hca"}))
    assert trainer(pods(wanted, context)[0])["resources"]["limits"]["rdma/hca"] == "2"
    assert plan(wanted, 0, [], context).config_maps[0]["data"] == {"NCCL_IB_HCA": "mlx5"}


def test_a_profile_places_pods_and_the_template_has_the_last_word() -> None:
    context = with_profile(
        nodeSelector={"gpu": "h100", "zone": "a"},
        tolerations=[{"key": "gpu"}],
        runtimeClassName="nvidia",
        supplementalGroups=[44, 109],
    )
    template = with_trainer()
    template["spec"] |= {"nodeSelector": {"zone": "b"}, "securityContext": {"supplementalGroups": [44]}}
    [pod] = pods(job(pool(profile="p", template=template)), context)
    assert pod["spec"]["nodeSelector"] == {"gpu": "h100", "zone": "b"}
    assert pod["spec"]["tolerations"] == [{"key": "gpu"}]
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["spec"]["securityContext"]["supplementalGroups"] == [44, 109]


def test_shared_memory_grows_with_the_processes_and_a_users_own_is_kept() -> None:
    [pod] = pods(job(pool(gpusPerReplica=8)))
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "hetccl-shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    mount = {"name": "own", "mountPath": "/dev/shm"}
    [pod] = pods(job(pool(template=with_trainer(volumeMounts=[mount]))))
    assert [m["name"] for m in trainer(pod)["volumeMounts"] if m["mountPath"] == "/dev/shm"] == ["own"]


def test_the_token_is_a_file_of_the_attempts_own_secret() -> None:
    wanted = job()
    planned = plan(wanted, 5, members(wanted), CONTEXT)
    pod = planned.pods[0].manifest
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "hetccl-token")
    assert volume["secret"]["secretName"] == planned.token["metadata"]["name"] == "job-5-token"
    mount = next(m for m in trainer(pod)["volumeMounts"] if m["name"] == "hetccl-token")
    assert f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}" == env(pod)["HETCCL_TOKEN_FILE"]
    assert "data" not in planned.token
    assert "stringData" not in planned.token


def test_trainers_have_no_credentials_and_never_restart_alone() -> None:
    spec = pods(job())[0]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_the_container_called_trainer_is_the_trainer_else_the_first() -> None:
    containers = [{"name": "sidecar", "image": "s"}, {"name": "trainer", "image": "t"}]
    [pod] = pods(job(pool(template={"spec": {"containers": containers}})))
    assert "env" not in pod["spec"]["containers"][0]
    assert "env" in pod["spec"]["containers"][1]
    [pod] = pods(job(pool(template={"spec": {"containers": [{"name": "a"}, {"name": "b"}]}})))
    assert ["env" in container for container in pod["spec"]["containers"]] == [True, False]


def test_planning_leaves_the_job_as_it_is() -> None:
    wanted = job(pool(template=with_trainer(env=[{"name": "PYTHONPATH", "value": "/x"}])))
    before = wanted.model_dump()
    pods(wanted)
    assert wanted.model_dump() == before


def test_every_child_belongs_to_the_job() -> None:
    wanted = job(pool(rdma={"ibHca": "mlx5"}))
    planned = plan(wanted, 0, members(wanted), CONTEXT)
    children = [planned.service, planned.token, *planned.config_maps, *(pod.manifest for pod in planned.pods)]
    for child in children:
        [owner] = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-of-the-job", True)
        assert child["metadata"]["labels"]["hetccl.io/job-name"] == "job"
        assert child["metadata"]["namespace"] == "team"


def test_names_resolve_before_pods_are_ready() -> None:
    service = plan(job(), 0, [], CONTEXT).service
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_local_mode_plans_the_same_pods_at_an_address_of_its_own() -> None:
    local = Context(
        delivery="Host",
        image="",
        home="/src/hetccl",
        address=lambda job, pod: ("127.0.0.1", 4321),
        token_file=lambda attempt: f"/tmp/token-{attempt}",
        report_port=4322,
    )
    pod = pods(job(hetccl={"delivery": "ImageVolume"}), local)[0]
    variables = env(pod)
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("127.0.0.1", "4321")
    assert (variables["HETCCL_TOKEN_FILE"], variables["HETCCL_REPORT_PORT"]) == ("/tmp/token-0", "4322")
    assert trainer(pod)["command"] == ["/src/hetccl/bootstrap/launch", "torchrun"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["hetccl-shm"]
