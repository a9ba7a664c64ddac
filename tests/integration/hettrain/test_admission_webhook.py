"""The webhook's process, called by a real API server."""

import base64
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import free_ports, poll
from tests.integration.hettrain.api_server import ApiServer, Refused
from tests.integration.hettrain.world import World
from tests.unit.hettrain.documents import document, pool

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Webhook:
    """The process, and what the chart would have made for it."""

    def __init__(self, api: ApiServer, kubeconfig: Path, namespace: str, log: Path) -> None:
        self.api, self.namespace, self.log = api, namespace, log
        self.port, self.name = free_ports(1)[0], f"test-{secrets.token_hex(4)}"
        self.secret = f"/api/v1/namespaces/{namespace}/secrets/webhook"
        api("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "webhook"}})
        hook = {
            "name": "jobs.hetccl.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": f"https://localhost:{self.port}/validate"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [
                {
                    "apiGroups": ["hetccl.io"],
                    "apiVersions": ["v1alpha1"],
                    "resources": ["hettrainingjobs"],
                    "operations": ["CREATE", "UPDATE"],
                }
            ],
        }
        api("POST", CONFIGURATIONS, {"metadata": {"name": self.name}, "webhooks": [hook]})
        flags = {"namespace": namespace, "secret": "webhook", "host": "localhost", "port": self.port}
        flags |= {"configuration": self.name, "hetccl-image": "registry.test/hetccl:1"}
        command = [
            sys.executable,
            "-m",
            "hettrain.cli",
            "webhook",
            *(f"--{flag}={value}" for flag, value in flags.items()),
        ]
        with log.open("wb") as output:
            environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self.api("DELETE", f"{CONFIGURATIONS}/{self.name}")
        return code

    def trusted(self) -> bytes:
        (hook,) = self.api("GET", f"{CONFIGURATIONS}/{self.name}")["webhooks"]
        return base64.b64decode(hook["clientConfig"].get("caBundle", ""))

    def served(self) -> bytes:
        """The certificate that the port answers with."""
        try:
            return ssl.get_server_certificate(("localhost", self.port), timeout=2).encode()
        except OSError:
            return b""


@pytest.fixture
def webhook(api: ApiServer, control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[Webhook]:
    made = Webhook(api, control_plane.kubeconfig, namespace, tmp_path / "log")
    try:
        poll("it is trusted", lambda: bool(made.served()) and made.served() in made.trusted(), 30)
        yield made
    finally:
        code = made.stop()
    assert code == 0, made.log.read_text()
    assert "Traceback" not in made.log.read_text()


@pytest.fixture
def unserved(api: ApiServer, namespace: str, webhook: Webhook) -> World:
    """A namespace without an operator, with the webhook."""
    return World(api, namespace)


def test_a_template_that_no_pod_can_be_made_of_is_refused_when_it_is_applied(unserved: World) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i:1", "imagePullPolicy": "Sometimes"}]}}
    with pytest.raises(Refused, match=r"pool amd: the API server refuses its pods: .*imagePullPolicy") as refused:
        unserved.create(pool(), pool("amd", vendor="amd", template=template))
    assert refused.value.status == 422
    unserved.create(pool())
    unserved.change(suspend=True)


def test_warnings_reach_the_user(unserved: World, control_plane: Cluster) -> None:
    manifest = document(pool())
    manifest["metadata"] = {"name": "job", "namespace": unserved.namespace}
    kubectl = [control_plane.binaries / "kubectl", "--kubeconfig", control_plane.kubeconfig]
    command = [*map(str, kubectl), "create", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(manifest), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning: pool nvidia: container trainer: image user/image may change between restarts" in done.stderr


def test_a_lost_certificate_and_a_foreign_bundle_are_replaced_without_a_restart(
    webhook: Webhook, unserved: World
) -> None:
    first = webhook.served()
    webhook.api.merge(webhook.secret, {"data": {"tls.crt": base64.b64encode(b"no certificate").decode()}})
    poll("another is served", lambda: webhook.served() not in (b"", first), 30)
    assert webhook.process.poll() is None
    poll("it is trusted", lambda: webhook.served() in webhook.trusted(), 30)
    unserved.create(pool())
    hook = webhook.api("GET", f"{CONFIGURATIONS}/{webhook.name}")["webhooks"][0]
    hook["clientConfig"]["caBundle"] = base64.b64encode(first).decode()
    webhook.api.merge(f"{CONFIGURATIONS}/{webhook.name}", {"webhooks": [hook]})
    poll("trust is back", lambda: webhook.served() in webhook.trusted(), 30)
    unserved.create(pool(), name="second")
