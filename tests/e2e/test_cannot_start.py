"""A job that cannot start says why."""

from tests.e2e.jobs import RunningJob, quickstart, trainer_of
from tests.e2e.system import System


def blocked(job: RunningJob) -> str:
    """The message of the condition Blocked, once it holds."""
    job.wait("blocked", lambda: job.condition("Blocked").get("status") == "True", 60)
    message: str = job.condition("Blocked")["message"]
    return message


def test_a_missing_image_is_named_with_its_pool(system: System, namespace: str) -> None:
    manifest = quickstart(steps=1)
    trainer = trainer_of(manifest["spec"]["pools"][1])
    trainer |= {"image": "registry.local/nowhere:1", "imagePullPolicy": "Never"}
    message = blocked(RunningJob.apply(system, namespace, manifest))
    assert "pool amd" in message
    assert "registry.local/nowhere:1" in message


def test_a_missing_resource_is_named_with_its_pool(system: System, namespace: str) -> None:
    manifest = quickstart(steps=1)
    manifest["spec"]["pools"][1]["gpusPerReplica"] = 64
    job = RunningJob.apply(system, namespace, manifest)
    message = blocked(job)
    assert "pool amd" in message
    assert "amd.com/gpu" in message
    row = system.cluster.kubectl("get", "htj", job.name, "--namespace", namespace, "--no-headers").split()
    assert row[1] == "Blocked"
