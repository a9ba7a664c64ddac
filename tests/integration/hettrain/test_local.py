"""`hettrain run --local`: a job as processes, under the policies of a cluster."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
QUICKSTART = ROOT / "examples" / "quickstart"


def job(*pools: tuple[str, str, str], **spec: Any) -> dict[str, Any]:
    """A job with a pool for each (name, vendor, shell command)."""
    return {
        "apiVersion": "hetccl.io/v1alpha1",
        "kind": "HetTrainingJob",
        "metadata": {"name": "local"},
        "spec": {
            "pools": [
                {
                    "name": name,
                    "vendor": vendor,
                    "replicas": 1,
                    "gpusPerReplica": 1,
                    "template": {
                        "spec": {
                            "containers": [{"name": "trainer", "image": "unused", "command": ["sh", "-c", command]}]
                        }
                    },
                }
                for name, vendor, command in pools
            ],
            "failurePolicy": {"backoff": {"initialSeconds": 0}},
            **spec,
        },
    }


def hettrain(*arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hettrain.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def runs(pid: int) -> bool:
    """Whether a process exists and is more than an entry that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], dict[str, Any]]]:
    def run(document: dict[str, Any]) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(document))
        done = hettrain("run", "--local", file, "--log-dir", tmp_path / "logs", "--json", tmp_path / "summary.json")
        summary = tmp_path / "summary.json"
        return done, json.loads(summary.read_text()) if summary.exists() else {}

    return run


def test_the_quickstart_runs_over_two_pools_and_its_losses_are_those_of_one_process(tmp_path: Path) -> None:
    done = hettrain(
        "run", "--local", QUICKSTART / "job.yaml", "--log-dir", tmp_path, "--json", tmp_path / "s.json", timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    assert [(r["rank"], r["pool"], r["vendor"], r["simulated"], r["exit_code"]) for r in summary["ranks"]] == [
        (0, "nvidia", "nvidia", True, 0),
        (1, "nvidia", "nvidia", True, 0),
        (2, "amd", "amd", True, 0),
    ]
    assert (summary["state"], summary["world_size"], summary["restarts"]) == ("Complete", 3, 0)
    assert re.search(r"0 +nvidia +0 +nvidia .*simulated", done.stdout)
    assert "nvidia-0 | step 200 loss " in done.stdout
    compared = subprocess.run(
        [sys.executable, QUICKSTART / "compare.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "largest difference" in compared.stdout


def test_the_comparison_fails_where_a_loss_is_off_by_more_than_rounding(tmp_path: Path) -> None:
    (tmp_path / "pod.log").write_text("step 1 loss 2.306644917\nstep 2 loss 2.4\n")
    compared = subprocess.run(
        [sys.executable, QUICKSTART / "compare.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert compared.returncode == 1
    assert "differ by more than rounding" in compared.stderr


def test_a_replica_that_dies_restarts_the_gang_with_what_is_left_of_the_budget(run: Any, tmp_path: Path) -> None:
    dies_once = f"test -e {tmp_path}/died || {{ touch {tmp_path}/died; exit 7; }}"
    waits = f"while [ $(ls {tmp_path}/logs/local-1-* 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.05; done"
    done, summary = run(job(("a", "nvidia", dies_once), ("b", "amd", waits), failurePolicy={"maxRestarts": 1}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (summary["state"], summary["restarts"]) == ("Complete", 1)
    assert [rank["exit_code"] for rank in summary["ranks"]] == [0, 0]
    assert "Restarting: PodFailed: pod local-0-a-0000 (pool a, rank 0) failed: Error, exit code 7" in done.stdout


def test_a_spent_budget_fails_the_job_and_stops_what_still_runs(run: Any) -> None:
    done, summary = run(job(("a", "nvidia", "exit 3"), ("b", "amd", "exec sleep 1000")))
    assert done.returncode == 1, done.stdout + done.stderr
    assert (summary["state"], summary["restarts"]) == ("Failed", 0)
    assert summary["ranks"][0]["exit_code"] == 3


def test_replicas_get_the_environment_contract(run: Any) -> None:
    done, _ = run(
        job(
            ("a", "nvidia", "echo $RANK/$WORLD_SIZE $PET_NODE_RANK/$PET_NNODES $HETCCL_VENDOR $HETCCL_SIMULATE"),
            ("b", "amd", "echo $RANK/$WORLD_SIZE $PET_NODE_RANK/$PET_NNODES $HETCCL_JOB; wc -c < $HETCCL_TOKEN_FILE"),
        )
    )
    assert "a-0 | 0/2 0/2 nvidia 1" in done.stdout
    assert "b-0 | 1/2 1/2 default/local/0" in done.stdout
    assert "b-0 | 64" in done.stdout


def test_ctrl_c_ends_every_process_within_five_seconds(tmp_path: Path) -> None:
    """Also those that ignore SIGTERM and those that moved to a session of their own, as torchrun's workers do."""
    stubborn = f"trap '' TERM; setsid sleep 1000.25 & echo $! > {tmp_path}/child; wait; sleep 1000.25"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(("a", "nvidia", stubborn), ("b", "amd", "exec sleep 1000.25"))))
    command = [sys.executable, "-m", "hettrain.cli", "run", "--local", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            assert time.monotonic() < deadline, "the replicas did not start"
            time.sleep(0.02)
        child = int((tmp_path / "child").read_text())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=5)
        assert process.stdout is not None
        assert "interrupted" in process.stdout.read()
    assert process.returncode == 130
    assert not runs(child)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["spec"]["pools"][1].update(replicas=-1),
            "spec.pools[1].replicas: found -1; ",
        ),
        (lambda d: d["spec"]["pools"][0].update(vendor="intel"), "spec.pools[0].vendor: found 'intel'; "),
        (lambda d: d["spec"].update(pool=[]), "spec.pool: found []; there is no such field: did you mean pools?"),
        (lambda d: d["spec"].pop("pools"), "spec.pools: found nothing; this field is required"),
        (lambda d: d.update(kind="Job"), "kind: found 'Job'; expected one of HetTrainingJob, HetPoolProfile"),
    ],
)
@pytest.mark.parametrize("command", [["validate"], ["run", "--local"]])
def test_a_wrong_file_is_refused_with_the_fields_path_before_anything_starts(
    tmp_path: Path, command: list[str], change: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = job(("a", "nvidia", f"touch {tmp_path}/started"), ("b", "amd", "true"))
    change(document)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(document))
    done = hettrain(*command, file)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("a: [1", "no YAML: "),
        ("- 1", "(document): found [1]; expected a HetTrainingJob object"),
    ],
)
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = hettrain("validate", file)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_missing_file_is_refused_by_name() -> None:
    done = hettrain("validate", "/nowhere/job.yaml")
    assert (done.returncode, done.stderr) == (2, "/nowhere/job.yaml: No such file or directory\n")


def test_what_only_a_cluster_has_is_refused_before_anything_starts(tmp_path: Path) -> None:
    document = job(("a", "nvidia", f"touch {tmp_path}/started"), ("b", "amd", "true"))
    container = document["spec"]["pools"][1]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(document))
    done = hettrain("run", "--local", file)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "pool b: env KEY comes from" in done.stderr
    assert not (tmp_path / "started").exists()


def test_render_prints_what_the_operator_would_create(tmp_path: Path) -> None:
    done = hettrain("render", QUICKSTART / "job.yaml")
    assert done.returncode == 0, done.stderr
    manifests = list(yaml.safe_load_all(done.stdout))
    assert [(m["kind"], m["metadata"]["name"]) for m in manifests if m["kind"] == "Pod"] == [
        ("Pod", "quickstart-0-nvidia-0000"),
        ("Pod", "quickstart-0-amd-0000"),
    ]
