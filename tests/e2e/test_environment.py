"""What the user's image and pod template say stays."""

import pytest

from tests.cluster.user_images import PYTHONPATH_IMAGE, USERS_FOLDER
from tests.e2e.jobs import RunningJob, quickstart, trainer_of
from tests.e2e.system import System

SHOW = "import users_own, os; print('PYTHONPATH', os.environ['PYTHONPATH'])"


@pytest.mark.timeout(400)
def test_the_images_pythonpath_and_the_users_nccl_settings_are_kept(system: System, namespace: str) -> None:
    system.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "users-nccl"},
            "data": {"NCCL_IB_HCA": "users", "NCCL_DEBUG": "WARN"},
        },
        namespace=namespace,
    )
    manifest = quickstart(steps=5)
    nvidia = manifest["spec"]["pools"][0]
    nvidia["rdma"] = {"ibHca": "pools", "gidIndex": 3}
    trainer = trainer_of(nvidia)
    train = " ".join(trainer["command"])
    trainer["image"] = PYTHONPATH_IMAGE
    trainer["command"] = ["sh", "-c", f'python3 -c "{SHOW}" && env | grep ^NCCL_ && exec {train}']
    trainer["envFrom"] = [{"configMapRef": {"name": "users-nccl"}}]
    job = RunningJob.apply(system, namespace, manifest)
    job.wait_until_complete()

    lines = job.log("nvidia").splitlines()
    assert f"PYTHONPATH /opt/hetccl/bootstrap:{USERS_FOLDER}" in lines
    settings = dict(line.split("=", 1) for line in lines if line.startswith("NCCL_"))
    assert settings == {"NCCL_IB_HCA": "users", "NCCL_DEBUG": "WARN", "NCCL_IB_GID_INDEX": "3"}
    comparison = job.compare_with_one_process()
    assert comparison.returncode == 0, comparison.stdout + comparison.stderr
