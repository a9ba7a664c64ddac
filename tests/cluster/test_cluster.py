"""The harness itself: what other tests rely on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.binaries import REPOSITORY
from tests.cluster.cluster import PREFIX, Cluster, remove_abandoned
from tests.cluster.processes import Processes, StartError, poll


def test_the_control_plane_accepts_objects_and_schedules_simulated_pods(control_plane: Cluster) -> None:
    control_plane.add_simulated_nodes(2)
    toleration = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"amd.com/gpu": "1"}}}]
    control_plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "on-amd"},
            "spec": {"tolerations": [toleration], "containers": containers},
        }
    )
    poll("the pod runs", lambda: control_plane.get("pod", "on-amd")["status"]["phase"] == "Running", 60)
    assert control_plane.get("pod", "on-amd")["spec"]["nodeName"] == "kwok-1"
    control_plane.kubectl("delete", "pod", "on-amd", "--grace-period=0", "--force")


def test_a_program_that_ends_at_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    processes = Processes(tmp_path, tmp_path)
    processes.start("doomed", sys.executable, "-c", "print('no such disk')")
    with pytest.raises(StartError, match=r"doomed did not come up.*\n.*no such disk"):
        processes.await_answer("doomed", "http://127.0.0.1:9/", timeout=30)


def test_a_killed_test_run_leaves_nothing_once_the_next_one_starts(tmp_path: Path) -> None:
    directory = tmp_path / f"{PREFIX}abandoned"
    script = f"""
import pathlib, time
from tests.cluster.cluster import Cluster
cluster = Cluster(pathlib.Path({str(directory)!r}), pathlib.Path("/bin"))
cluster.directory.mkdir()
cluster.claim()
cluster.processes.start("orphan", "sleep", 600)
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY)
    try:
        poll("the orphan runs", (directory / "pids" / "orphan").exists, 30)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    orphan = int((directory / "pids" / "orphan").read_text().split()[0])
    remove_abandoned(tmp_path, Path("/bin"))
    assert not directory.exists()
    poll("the orphan ends", lambda: not Path(f"/proc/{orphan}").exists() or _is_zombie(orphan), 10)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_living_test_run_keeps_its_cluster(tmp_path: Path) -> None:
    directory = tmp_path / f"{PREFIX}mine"
    directory.mkdir()
    Cluster(directory, tmp_path).claim()
    remove_abandoned(tmp_path, Path("/bin"))
    assert json.loads((directory / "owner.json").read_text())["pid"] == os.getpid()
