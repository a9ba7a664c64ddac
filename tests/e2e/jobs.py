"""Jobs made from examples/quickstart, and what tests ask about them."""

import copy
import json
import re
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from tests.cluster.binaries import REPOSITORY
from tests.cluster.processes import poll
from tests.cluster.user_images import AMD_USER_IMAGE, NVIDIA_USER_IMAGE
from tests.e2e.system import System, write_logs

QUICKSTART = REPOSITORY / "examples" / "quickstart"
IMAGES = {"nvidia": NVIDIA_USER_IMAGE, "amd": AMD_USER_IMAGE}
STEP = re.compile(r"^step (\d+) loss ", re.MULTILINE)
START_SECONDS, FINISH_SECONDS = 90.0, 150.0

Manifest = dict[str, Any]


def quickstart(steps: int) -> Manifest:
    """The example's job as it is, with this cluster's images and a number of steps."""
    job: Manifest = yaml.safe_load((QUICKSTART / "job.yaml").read_text())
    for pool in job["spec"]["pools"]:
        trainer = trainer_of(pool)
        trainer["image"] = IMAGES[pool["vendor"]]
        trainer["command"] = [*trainer["command"], "--steps", str(steps)]
        # torchrun hears no SIGTERM while it waits for other pods, and would hold its GPUs for the default 30 s.
        pool["template"]["spec"]["terminationGracePeriodSeconds"] = 3
    return job


def trainer_of(pool: Manifest) -> Manifest:
    """The trainer container of a pool."""
    container: Manifest = pool["template"]["spec"]["containers"][0]
    return container


@dataclass(frozen=True)
class RunningJob:
    """A job that was applied in a namespace of its own."""

    system: System
    namespace: str
    name: str

    @classmethod
    def apply(cls, system: System, namespace: str, manifest: Manifest) -> "RunningJob":
        """kubectl apply, as the example says: the script as a ConfigMap, then the job."""
        kubectl = system.cluster.kubectl
        maps = system.cluster.get("configmaps", "--namespace", namespace)["items"]
        if "quickstart" not in [item["metadata"]["name"] for item in maps]:
            script = f"--from-file={QUICKSTART / 'train.py'}"
            kubectl("create", "configmap", "quickstart", script, "--namespace", namespace)
        kubectl("apply", "--namespace", namespace, "-f", "-", stdin=json.dumps(copy.deepcopy(manifest)))
        return cls(system, namespace, manifest["metadata"]["name"])

    # -- what the API server says ---------------------------------------------------------------------------------
    def get(self) -> Manifest:
        """The job."""
        path = f"/apis/hetccl.io/v1alpha1/namespaces/{self.namespace}/hettrainingjobs/{self.name}"
        job: Manifest = json.loads(self.system.cluster.fetch(path))
        return job

    def condition(self, kind: str) -> Manifest:
        """A condition by type; empty where there is none."""
        conditions = self.get().get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def children(self, kind: str) -> list[Manifest]:
        """The objects of a kind that the job owns."""
        uid = self.get()["metadata"]["uid"]
        items = json.loads(self.system.cluster.fetch(f"/api/v1/namespaces/{self.namespace}/{kind}"))["items"]
        return [
            item for item in items if uid in [owner["uid"] for owner in item["metadata"].get("ownerReferences", [])]
        ]

    def pods(self) -> dict[str, Manifest]:
        """The job's pods by pool, one replica each."""
        return {pod["metadata"]["labels"]["hetccl.io/pool"]: pod for pod in self.children("pods")}

    def uids(self) -> set[str]:
        """The UIDs of all children."""
        return {child["metadata"]["uid"] for kind in ("pods", "services", "secrets") for child in self.children(kind)}

    def log(self, pool: str) -> str:
        """What the trainer of a pool has printed; nothing where it has not started."""
        pod = self.pods().get(pool)
        if pod is None:
            return ""
        try:
            name = pod["metadata"]["name"]
            return self.system.cluster.fetch(f"/api/v1/namespaces/{self.namespace}/pods/{name}/log?container=trainer")
        except urllib.error.HTTPError:
            return ""

    # -- waiting --------------------------------------------------------------------------------------------------
    def wait(self, what: str, condition: Callable[[], bool], timeout: float) -> None:
        """Wait until a condition holds; a failure shows what the job, its pods and the operator say."""
        try:
            poll(f"{self.name}: {what}", condition, timeout, interval=0.4)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def wait_for_step(self, step: int, timeout: float = START_SECONDS) -> None:
        """Wait until the first pool has trained so many steps, and no longer than it trains."""

        def trained() -> bool:
            steps = [int(match) for match in STEP.findall(self.log("nvidia"))]
            return bool(steps) and steps[-1] >= step

        self.wait(f"step {step}", trained, timeout)
        assert not self.condition("Complete"), f"{self.name} was over before it could be disturbed: give it more steps"

    def wait_until_complete(self, timeout: float = FINISH_SECONDS) -> Manifest:
        """Wait for the condition Complete; returns the status."""

        def over() -> bool:
            if self.condition("Failed").get("status") == "True":
                raise AssertionError(f"{self.name} failed\n{self.story()}")
            return bool(self.condition("Complete").get("status") == "True")

        self.wait("complete", over, timeout)
        status: Manifest = self.get()["status"]
        return status

    def story(self) -> str:
        """All that may explain a failure."""
        logs = "\n".join(f"--- log of pool {pool}\n{self.log(pool)[-3000:]}" for pool in ("nvidia", "amd"))
        status = yaml.safe_dump(self.get().get("status", {}))
        events = self.system.cluster.kubectl("get", "events", "--namespace", self.namespace)
        pods = self.system.cluster.kubectl("get", "pods", "--namespace", self.namespace, "-o", "wide")
        return f"{status}\n{pods}\n{events}\n{logs}\n--- operator\n{self.system.operator_log()}"

    def compare_with_one_process(self) -> "subprocess.CompletedProcess[str]":
        """Run the example's own comparison over the pods' logs."""
        folder = write_logs(self.system.cluster, self.namespace)
        command = [sys.executable, str(QUICKSTART / "compare.py"), str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)
