"""The commands against the real API server, under the real operator; tests play user and kubelet."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hettrain.cli import main
from hettrain.status.times import parse_time

from tests.cluster.cluster import Cluster
from tests.cluster.processes import poll
from tests.integration.hettrain.api_server import ApiServer
from tests.integration.hettrain.world import World

FIRST = ("job-0-nvidia-0000", "job-0-amd-0000")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hettrain(control_plane: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in the test's namespace: its exit code, standard output and standard error."""

    def run(command: str, *arguments: str, kubeconfig: Path = control_plane.kubeconfig) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([command, *arguments, "-n", namespace, "--kubeconfig", str(kubeconfig)])
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, shown.out, shown.err

    return run


def process(control_plane: Cluster, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}
    command = [sys.executable, "-u", "-m", "hettrain.cli", *arguments]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    )


def start(world: World, **spec: object) -> None:
    world.create(**spec)
    world.until_pods(*FIRST)
    world.run()
    world.until_state("Running")


def test_status_shows_conditions_pools_ranks_and_the_first_failure(world: World, hettrain: Run) -> None:
    start(world, failurePolicy={"maxRestarts": 0})
    code, shown, _ = hettrain("status", "job")
    assert code == 0
    assert f"{world.namespace}/job: Running" in shown
    assert "PodsReady" in shown
    assert [line.split() for line in shown.splitlines() if line.startswith(("0  ", "1  "))] == [
        ["0", "nvidia", "nvidia", FIRST[0], "-", "running"],
        ["1", "amd", "amd", FIRST[1], "-", "running"],
    ]
    world.end(FIRST[1], 3, message="Traceback: it broke")
    world.until_state("Failed")
    code, shown, _ = hettrain("status", "job", "-o", "json")
    document = json.loads(shown)
    assert (document["state"], document["firstFailure"]["exitCode"], len(document["ranks"])) == ("Failed", 3, 2)
    assert "Traceback: it broke" in hettrain("status", "job")[1]
    assert yaml.safe_load(hettrain("status", "job", "-o", "yaml")[1]) == document


def test_status_watches_until_the_job_is_over(world: World, control_plane: Cluster) -> None:
    start(world)
    with process(control_plane, "status", "job", "--watch", "-n", world.namespace) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == f"{world.namespace}/job: Running\n"
        for pod in FIRST:
            world.end(pod)
        rest, _ = watching.communicate(timeout=30)
    assert f"{world.namespace}/job: Complete" in rest
    assert watching.returncode == 0


@pytest.mark.parametrize(
    ("goal", "code", "end", "state"),
    [("complete", 0, 0, "Complete"), ("complete", 1, 3, "Failed"), ("failed", 0, 3, "Failed"), ("failed", 1, 0, "Com")],
)
def test_wait_says_by_its_exit_code_what_became_of_the_job(
    world: World, control_plane: Cluster, goal: str, code: int, end: int, state: str
) -> None:
    start(world)
    with process(control_plane, "wait", "job", f"--for={goal}", "--timeout=60s", "-n", world.namespace) as waiting:
        for pod in FIRST:
            world.end(pod, end)
        said, _ = waiting.communicate(timeout=40)
    assert waiting.returncode == code, said
    assert f"job: {state}" in said


def test_wait_gives_up_with_a_code_of_its_own(world: World, hettrain: Run) -> None:
    world.create()
    world.until_pods(*FIRST)
    code, _, error = hettrain("wait", "job", "--for=running", "--timeout=1s")
    assert (code, error.strip().startswith("job: "), "not running within 1 s" in error) == (3, True, True)
    assert hettrain("wait", "job", "--timeout=0")[0] == 3


def test_wait_ends_when_the_job_is_deleted(world: World, control_plane: Cluster) -> None:
    start(world)
    with process(control_plane, "wait", "job", "--timeout=60s", "-n", world.namespace) as waiting:
        world.api("DELETE", f"{world.jobs}/job")
        said, _ = waiting.communicate(timeout=40)
    # The job may be gone before wait has looked at all.
    assert (waiting.returncode, "deleted" in said) in ((1, True), (4, False)), said


def test_suspend_resume_restart_and_delete(world: World, hettrain: Run) -> None:
    start(world)
    assert hettrain("suspend", "job") == (0, "job: suspended\n", "")
    world.until_state("Suspended")
    assert hettrain("suspend", "job") == (0, "job: nothing to do: suspended\n", "")
    assert hettrain("resume", "job") == (0, "job: resumed\n", "")
    world.until_pods("job-1-nvidia-0000", "job-1-amd-0000")
    world.run()
    assert hettrain("wait", "job", "--for=running", "--timeout=20s")[0] == 0
    assert hettrain("restart", "job") == (0, "job: starts over\n", "")
    world.until_pods("job-2-nvidia-0000", "job-2-amd-0000")
    assert hettrain("delete", "job")[0] == 0
    # The garbage collector learns of a new kind within half a minute.
    world.until("the pods are gone", lambda: not world.pods(), 60)


def test_events_of_job_and_pods_are_one_list(world: World, hettrain: Run) -> None:
    start(world)
    world.until("the operator has told", lambda: {"Started", "Running"} <= {reason for reason, _ in world.events()})
    # No node has GPUs here: the scheduler says so of every pod.
    world.until("the scheduler has told", lambda: "FailedScheduling" in hettrain("events", "job")[1])
    document = json.loads(hettrain("events", "job", "-o", "json")[1])
    assert {"job", *FIRST} == {event["object"] for event in document}
    times = [parse_time(event["time"]) for event in document]
    assert times == sorted(times)
    warnings = json.loads(hettrain("events", "job", "-o", "json", "--warnings")[1])
    assert {event["type"] for event in warnings} == {"Warning"}


def test_a_misspelt_name_is_answered_with_the_close_ones(world: World, hettrain: Run) -> None:
    world.create(name="train")
    code, out, error = hettrain("status", "trian")
    assert (code, out) == (4, "")
    assert error == f"there is no HetTrainingJob trian in namespace {world.namespace}: did you mean train?\n"
    assert "There are: train" in hettrain("logs", "xyz")[2]


def test_no_access_names_the_missing_verb(control_plane: Cluster, world: World, hettrain: Run, tmp_path: Path) -> None:
    control_plane.authority.issue("nobody", "/CN=nobody")
    config = control_plane.authority.kubeconfig(tmp_path / "config", control_plane.server, "nobody")
    world.create()
    for command, verb in (("status", "get"), ("suspend", "get"), ("delete", "delete")):
        code, _, error = hettrain(command, "job", kubeconfig=config)
        assert code == 4
        assert f"needs the verb {verb} on hettrainingjobs.hetccl.io in namespace {world.namespace}" in error
    assert 'User "nobody" cannot' in error


def test_a_cluster_without_the_crd_says_how_to_install(
    api: ApiServer, control_plane: Cluster, hettrain: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hettrain.commands.cluster.VERSION", "v0missing")  # as a cluster without our CRD answers
    code, _, error = hettrain("status", "job")
    assert code == 4
    assert "helm install hettrain" in error


def test_an_api_server_that_is_away_is_named(hettrain: Run, control_plane: Cluster, tmp_path: Path) -> None:
    config = control_plane.authority.kubeconfig(tmp_path / "config", "https://127.0.0.1:1", "admin")
    code, _, error = hettrain("status", "job", kubeconfig=config)
    assert code == 4
    assert "the API server https://127.0.0.1:1 does not answer" in error
    code, _, error = hettrain("status", "job", kubeconfig=tmp_path / "nowhere")
    assert (code, "Set KUBECONFIG" in error) == (4, True)


def test_the_namespace_is_the_contexts_own_where_none_is_given(
    control_plane: Cluster, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.create()
    config = json.loads(control_plane.kubeconfig.read_text())
    context = {**config["contexts"][0]["context"], "namespace": world.namespace}
    config["contexts"].append({"name": "mine", "context": context})
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    with pytest.raises(SystemExit) as ended:
        main(["status", "job", "--kubeconfig", str(file), "--context", "mine"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"{world.namespace}/job: ")


def test_kubectl_finds_it_as_a_plug_in(control_plane: Cluster, world: World, tmp_path: Path) -> None:
    world.create()
    plugin = tmp_path / "kubectl-hettrain"
    plugin.write_text(f"#!{sys.executable}\nfrom hettrain.cli import main\nmain()\n")
    plugin.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KUBECONFIG": str(control_plane.kubeconfig),
    }
    command = [control_plane.binaries / "kubectl", "hettrain", "status", "job", "-n", world.namespace]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"{world.namespace}/job: ")


def test_top_counts_gpus_by_vendor_and_says_that_nobody_measures(world: World, hettrain: Run) -> None:
    start(world)
    code, shown, error = hettrain("top")
    assert (code, "no metrics server" in error) == (0, True)
    assert "1 nvidia, 1 amd" in shown
    rows = json.loads(hettrain("top", "job", "-o", "json")[1])
    assert [(row["pod"], row["gpus"], row["cpuCores"]) for row in rows] == [(pod, 1, None) for pod in FIRST]


METRICS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"}},
    "spec": {
        "group": "metrics.k8s.io",
        "names": {"kind": "PodMetrics", "plural": "pods"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
def metrics(api: ApiServer, namespace: str) -> Iterator[str]:
    """The path of PodMetrics, served as a CRD of their shape: a simulated metrics server."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api("POST", crds, METRICS)
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
    poll("the metrics are served", lambda: _answers(api, path), 20)
    yield path
    api("DELETE", f"{crds}/pods.metrics.k8s.io")
    poll("the metrics are gone", lambda: not _answers(api, path), 20)


def _answers(api: ApiServer, path: str) -> bool:
    try:
        api("GET", path)
    except Exception:  # whatever it answers until then
        return False
    return True


def test_top_sums_what_the_containers_of_a_pod_use(world: World, hettrain: Run, metrics: str, api: ApiServer) -> None:
    start(world)
    usage = [{"name": "a", "usage": {"cpu": "250m", "memory": "64Mi"}}, {"name": "b", "usage": {"cpu": "1"}}]
    measured = {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "PodMetrics",
        "metadata": {"name": FIRST[0], "labels": {"hetccl.io/job-name": "job"}},
        "containers": usage,
    }
    world.until("the metrics are stored", lambda: api("POST", metrics, measured))
    code, shown, error = hettrain("top", "job")
    assert (code, error) == (0, "")
    assert [line.split()[-2:] for line in shown.splitlines()[1:]] == [["1.25", "64Mi"], ["-", "-"]]
    assert hettrain("top")[1].splitlines()[1].split()[-2:] == ["1.25", "64Mi"]
