"""hetccl gets into an image that has none, and changes nothing in a process that is not of a job."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.hetccl.bare_image import make_image, make_tree
from tests.integration.hetccl.torch_ranks import ROOT, Gang, Process, of_pool, plain

TRAIN = ROOT / "examples" / "quickstart" / "train.py"
STEPS = ["--steps", "8"]

FACTS = """
import json, os, sys
import torch
import torch.distributed as dist
try:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    error = ""
except Exception as raised:
    error = str(raised)
print(json.dumps({
    "error": error,
    "available": dist.is_nccl_available(),
    "class": hasattr(dist, "ProcessGroupNCCL"),
    "of the CPU": dist.Backend.default_device_backend_map["cpu"],
    "ours": sorted(name for name in sys.modules if name.split(".")[0] == "hetccl"),
    "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
    "path": [folder for folder in sys.path if "bootstrap" not in folder],
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
}))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def alone(image: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process on the same data, of an image without hetccl."""
    log = tmp_path_factory.mktemp("alone") / "log"
    return losses(Process([image, TRAIN, *STEPS], plain(), log).succeeds())


@pytest.fixture
def image_with_its_own(tmp_path: Path) -> Path:
    """What an image may have on PYTHONPATH: a module, and a sitecustomize that leaves a mark."""
    folder = tmp_path / "of the image"
    folder.mkdir()
    (folder / "theirs.py").write_text("")
    (folder / "sitecustomize.py").write_text(
        "import os, sys, theirs\nprint('their sitecustomize is', __name__, 'of', os.getpid(), file=sys.stderr)\n"
    )
    return folder


def losses(said: str) -> list[float]:
    found = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", said)]
    assert len(found) == 8
    return found


def python(image: Path, code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [image, "-c", code], env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def facts(image: Path, environment: dict[str, str]) -> dict[str, object]:
    done = python(image, FACTS, environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_image_has_torch_and_no_hetccl(image: Path) -> None:
    done = python(
        image, "import importlib.util as u; print(bool(u.find_spec('torch')), u.find_spec('hetccl'))", plain()
    )
    assert done.stdout == "True None\n"


def test_torchrun_in_two_pools_trains_an_unmodified_script_through_pythonpath_alone(
    image: Path, tree: Path, alone: list[float], image_with_its_own: Path, tmp_path: Path
) -> None:
    """The image's sitecustomize comes first here and hides ours: torch's entry points do it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    (tmp_path / "token").write_text("token")
    with ExitStack() as stack:
        pods = []
        for node, (pool, processes) in enumerate([("nvidia", 2), ("amd", 1)]):
            environment = of_pool(
                pool,
                PYTHONPATH=f"{image_with_its_own}:{tree / 'bootstrap'}",
                HETCCL_HOME=str(tree),
                HETCCL_TOKEN_FILE=str(tmp_path / "token"),
                PET_NNODES="2",
                PET_NPROC_PER_NODE=str(processes),
                PET_NODE_RANK=str(node),
                PET_MASTER_ADDR="127.0.0.1",
                PET_MASTER_PORT=port,
            )
            command = [image, "-m", "torch.distributed.run", TRAIN, *STEPS]
            pods.append(Process(command, environment, tmp_path / f"{pool}.log"))
            stack.callback(pods[-1].kill)
        said, other = (pod.succeeds(100) for pod in pods)
    assert losses(said) == pytest.approx(alone, rel=1e-5)
    assert f"injected from {tree}" in said
    assert "ranks 0-1: pool nvidia (nvidia, simulated on the CPU)" in said
    assert "rank 2: pool amd (amd, simulated on the CPU)" in said
    assert "[hetccl rank 0] world of 3" in said
    assert "their sitecustomize" in said
    assert "their sitecustomize" in other


def test_the_launcher_serves_a_torch_that_loads_no_entry_points_and_runs_the_sitecustomize_that_it_hides(
    image: Path, tree: Path, alone: list[float], image_with_its_own: Path, tmp_path: Path
) -> None:
    with Gang(
        [tree / "bootstrap" / "launch", image, TRAIN, *STEPS],
        tmp_path,
        PYTHONPATH=str(image_with_its_own),
        HETCCL_HOME=str(tree),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    ) as gang:
        said = [rank.succeeds(100) for rank in gang.ranks]
    assert losses(said[0]) == pytest.approx(alone, rel=1e-5)
    assert f"injected from {tree}" in said[0]
    for text in said:
        assert text.count("their sitecustomize is sitecustomize of") == 1


def test_nothing_changes_in_a_process_that_is_not_of_a_job(image: Path, tree: Path) -> None:
    before, after = (
        facts(image, plain(**more)) for more in ({}, {"PYTHONPATH": str(tree / "bootstrap"), "HETCCL_SIMULATE": "1"})
    )
    assert before == after
    assert before["ours"] == []


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_a_broken_tree_breaks_no_import_and_nccl_says_why_it_refuses(
    image: Path, tree: Path, tmp_path: Path, autoload: str
) -> None:
    broken = tmp_path / "tree"
    shutil.copytree(tree, broken)
    (broken / "hetccl" / "torch" / "nccl.py").write_text("raise ValueError('half a\\nfile')\n")
    environment = of_pool("nvidia", PYTHONPATH=str(broken / "bootstrap"), TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    done = python(image, FACTS, environment)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "hetccl" in line] == [
        'hetccl: cannot take over "nccl", which will refuse to work: ValueError: half a file'
    ]
    found = json.loads(done.stdout)
    assert found["error"] == 'hetccl could not take over "nccl" in this process: ValueError: half a file'


def test_a_tree_that_is_not_whole_and_a_wrong_setting_are_said_too(image: Path, tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree / "bootstrap", tmp_path / "bootstrap")
    for bootstrap, more, reason in (
        (tmp_path, {}, "No module named 'hetccl'"),
        (tree, {"HETCCL_TRANSPORT": "fast"}, "HETCCL_TRANSPORT is 'fast'; allowed: Auto, RDMA, TCP"),
    ):
        done = python(image, FACTS, {**of_pool("amd", PYTHONPATH=str(bootstrap / "bootstrap")), **more})
        assert done.stderr.count("hetccl: cannot take over") == 1
        assert reason in done.stderr
        assert reason in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(("simulate", "code"), [("1", 0), ("0", 2)])
def test_the_preflight_finds_a_python_and_hetccl_and_fails_where_hetccl_does_not_work(
    image: Path, tree: Path, tmp_path: Path, simulate: str, code: int
) -> None:
    environment = of_pool("amd", PATH=f"{image.parent}:/usr/bin:/bin") | {"HETCCL_SIMULATE": simulate}
    check = [tree / "bootstrap" / "preflight", "Fail", "--message", tmp_path / "message"]
    done = subprocess.run(check, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    levels = [finding["level"] for finding in json.loads((tmp_path / "message").read_text())]
    assert ("broken" in levels) == (code == 2)


def test_a_gpu_vendors_rank_without_a_gpu_is_told_how_to_simulate_one(image: Path, tree: Path) -> None:
    environment = of_pool("amd", PYTHONPATH=str(tree / "bootstrap"))
    del environment["HETCCL_SIMULATE"]
    found = facts(image, environment)
    assert "rank 0 is of vendor amd, but torch" in str(found["error"])
    assert "finds no GPU" in str(found["error"])
    assert "set HETCCL_SIMULATE=1 (spec.hetccl.simulate)" in str(found["error"])
    assert found["of the CPU"] == "gloo", "a program that asks for no backend must not land on a group without GPUs"


def test_the_images_own_hetccl_wins_over_the_injected_one_and_the_log_says_so(tree: Path) -> None:
    environment = of_pool("cpu", PYTHONPATH=str(tree / "bootstrap"), HETCCL_HOME=str(tree))
    done = python(Path(sys.executable), FACTS, environment)
    assert json.loads(done.stdout)["error"] == ""
    assert f"the image's own at {ROOT / 'hetccl'}, not the one at {tree}" in done.stderr


@pytest.fixture(autouse=True)
def _no_bytecode_in_the_tree(tree: Path) -> Iterator[None]:
    """The tree is mounted read-only in a pod."""
    for path in (tree, *tree.rglob("*")):
        if path.is_dir():
            path.chmod(0o555)
    yield
    for path in (tree, *tree.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
