"""One unmodified script over two vendors' pools, from two images without hetccl, on a real Kubernetes."""

import json
import subprocess

import pytest

from tests.cluster.own_images import HETCCL_IMAGE
from tests.cluster.processes import poll
from tests.e2e.jobs import IMAGES, RunningJob, quickstart
from tests.e2e.system import GPUS, System

PROBE = """
import importlib.util, sys, torch
print(sys.version_info[:2], torch.__version__, importlib.util.find_spec('hetccl'))
"""


def equal_curves(comparison: "subprocess.CompletedProcess[str]") -> None:
    """The loss curve is that of one process but for rounding."""
    assert comparison.returncode == 0, comparison.stdout + comparison.stderr


def last_words(system: System, namespace: str, pod: str) -> str:
    """The last line of a pod's log, once it has ended."""
    where = ("pod", pod, "--namespace", namespace)
    poll(f"{pod} ends", lambda: system.cluster.get(*where)["status"]["phase"] in ("Succeeded", "Failed"), 60)
    return system.cluster.kubectl("logs", pod, "--namespace", namespace).splitlines()[-1]


def test_the_users_images_differ_and_hold_no_hetccl(system: System, namespace: str) -> None:
    for vendor, image in IMAGES.items():
        container = {"name": "probe", "image": image, "command": ["python3", "-c", PROBE]}
        spec = {"restartPolicy": "Never", "containers": [container], "nodeName": GPUS[f"{vendor}.com/gpu"][0]}
        system.cluster.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": vendor}, "spec": spec}, namespace=namespace
        )
    said = {vendor: last_words(system, namespace, vendor) for vendor in IMAGES}
    assert said["nvidia"].startswith("(3, 11) 2.13")
    assert said["amd"].startswith("(3, 13) 2.6")
    assert all(line.endswith(" None") for line in said.values()), said


@pytest.mark.timeout(400)
def test_one_job_trains_over_both_vendors_with_hetccl_from_an_image_volume(system: System, namespace: str) -> None:
    calls = {resource: len(gpus.allocated) for resource, gpus in system.gpus.items()}
    manifest = quickstart(steps=50)
    manifest["spec"]["hetccl"]["preflight"] = "Fail"
    job = RunningJob.apply(system, namespace, manifest)
    status = job.wait_until_complete()

    pods = job.pods()
    assert {pool: pod["spec"]["nodeName"] for pool, pod in pods.items()} == {"nvidia": "node1", "amd": "node2"}
    for pod in pods.values():
        assert [v["image"]["reference"] for v in pod["spec"]["volumes"] if "image" in v] == [HETCCL_IMAGE]
        assert [container["name"] for container in pod["spec"]["initContainers"]] == ["hetccl-preflight"]

    # The GPUs went through the kubelets: so many devices, of the vendor's own resource, to the preflight and then, the
    # same ones, to the trainer.
    allocated = {resource: gpus.allocated[calls[resource] :] for resource, gpus in system.gpus.items()}
    for resource, count in (("nvidia.com/gpu", 2), ("amd.com/gpu", 1)):
        checked, trained = (set(ids) for ids in allocated[resource])
        assert checked == trained
        assert len(trained) == count

    equal_curves(job.compare_with_one_process())

    assert status["state"] == "Complete"
    assert status["worldSize"] == 3
    assert status["restarts"] == 0
    assert [(pool["name"], pool["succeeded"], pool["completedIndexes"]) for pool in status["pools"]] == [
        ("nvidia", 1, "0"),
        ("amd", 1, "0"),
    ]
    assert job.condition("PreflightPassed")["status"] == "True"
    injected = job.condition("InjectionVerified")
    assert injected["status"] == "True", injected
    assert "pool nvidia: 2 ranks (simulated)" in injected["message"]
    assert "pool amd: 1 ranks (simulated)" in injected["message"]

    header, row = system.cluster.kubectl("get", "htj", "--namespace", namespace).splitlines()
    assert header.split() == ["NAME", "STATE", "POOLS", "READY", "RESTARTS", "AGE"]
    assert row.split()[:2] == ["quickstart", "Complete"]
    assert row.split()[-2] == "0"

    system.cluster.kubectl("delete", "htj", job.name, "--namespace", namespace)
    left = ("pods,services,secrets,configmaps", "--namespace", namespace, "--selector", "hetccl.io/job-name")
    poll("the job's children are gone", lambda: not system.cluster.get(*left)["items"], 60)


@pytest.mark.timeout(400)
def test_one_job_trains_over_both_vendors_with_hetccl_from_an_init_container(system: System, namespace: str) -> None:
    manifest = quickstart(steps=30)
    manifest["spec"]["hetccl"]["delivery"] = "InitContainer"
    job = RunningJob.apply(system, namespace, manifest)
    job.wait_until_complete()
    for pod in job.pods().values():
        assert [container["image"] for container in pod["spec"]["initContainers"]] == [HETCCL_IMAGE]
        assert not [volume for volume in pod["spec"]["volumes"] if "image" in volume]
    equal_curves(job.compare_with_one_process())


def test_the_operator_leaves_no_finalizer_and_no_annotation_on_a_job(system: System, namespace: str) -> None:
    manifest = quickstart(steps=1)
    manifest["spec"]["suspend"] = True
    job = RunningJob.apply(system, namespace, manifest)
    job.wait("suspended", lambda: job.condition("Suspended").get("status") == "True", 30)
    metadata = job.get()["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    assert json.loads(metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])["spec"]["suspend"]
