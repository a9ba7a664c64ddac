"""A namespace in which tests play user and kubelet."""

from collections.abc import Callable
from typing import Any

from tests.cluster.processes import poll
from tests.integration.hettrain.api_server import JOBS, ApiServer, Refused
from tests.unit.hettrain.documents import document

__all__ = ["World"]

DEADLINE = 20


class World:
    """Jobs and pods of one namespace."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.jobs = JOBS.format(namespace)

    # -- the user
    def create(
        self, *pools: dict[str, Any], name: str = "job", labels: dict[str, str] | None = None, **spec: Any
    ) -> dict[str, Any]:
        manifest = document(*pools, name=name, **spec)
        manifest["metadata"] = {"name": name, "labels": labels or {}}
        return self.api("POST", self.jobs, manifest)

    def job(self, name: str = "job") -> dict[str, Any]:
        return self.api("GET", f"{self.jobs}/{name}")

    def status(self, name: str = "job") -> dict[str, Any]:
        found: dict[str, Any] = self.job(name).get("status", {})
        return found

    def condition(self, kind: str, name: str = "job") -> dict[str, Any]:
        return next((c for c in self.status(name).get("conditions", ()) if c["type"] == kind), {})

    def change(self, name: str = "job", **spec: Any) -> None:
        self.api.merge(f"{self.jobs}/{name}", {"spec": spec})

    def events(self) -> list[tuple[str, str]]:
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        return [
            (event["reason"], event["message"]) for event in found if event["source"].get("component") == "hettrain"
        ]

    # -- the kubelet
    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in found}

    def set_status(self, pod: str, **status: Any) -> None:
        self.api.merge(f"/api/v1/namespaces/{self.namespace}/pods/{pod}/status", {"status": status})

    def run(self, *pods: str) -> None:
        for pod in pods or self.pods():
            running = {"name": "trainer", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
            self.set_status(
                pod,
                phase="Running",
                podIP="127.0.0.1",
                podIPs=[{"ip": "127.0.0.1"}],
                conditions=[{"type": "Ready", "status": "True"}],
                containerStatuses=[{**running, "state": {"running": {}}}],
            )

    def end(self, pod: str, code: int = 0, reason: str = "Error", message: str = "") -> None:
        terminated = {"exitCode": code, "reason": reason if code else "Completed", "message": message}
        ended = {"name": "trainer", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        self.set_status(
            pod,
            phase="Failed" if code else "Succeeded",
            containerStatuses=[{**ended, "state": {"terminated": terminated}}],
        )

    def bind(self, pod: str, node: str = "some-node") -> None:
        """As the scheduler does it."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node},
        }
        self.api("POST", f"/api/v1/namespaces/{self.namespace}/pods/{pod}/binding", binding)

    def delete_pod(self, pod: str) -> None:
        self.api("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{pod}")

    # -- everybody
    def until(self, what: str, condition: Callable[[], object], seconds: float = DEADLINE) -> None:
        def holds() -> bool:
            try:
                return bool(condition())
            except Refused:
                return False

        poll(what, holds, seconds)

    def until_pods(self, *names: str) -> None:
        self.until(f"the pods are {names}", lambda: set(self.pods()) == set(names))

    def until_state(self, state: str, name: str = "job") -> None:
        self.until(f"the state is {state}", lambda: self.status(name).get("state") == state)

    def left_behind(self) -> list[str]:
        """Objects of any job in this namespace."""
        kinds = ("pods", "services", "secrets", "configmaps")
        return [
            f"{kind}/{item['metadata']['name']}"
            for kind in kinds
            for item in self.api.items(f"/api/v1/namespaces/{self.namespace}/{kind}?labelSelector=hetccl.io/job-name")
        ]
