"""A real Kueue beside a control plane: its manager as a process, its webhooks called by address instead of Service."""

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster
from tests.cluster.pki import openssl
from tests.cluster.processes import free_ports

__all__ = ["start_kueue"]

NAMESPACE = "kueue-system"
SERVED_AS = f"DNS:kueue-webhook-service.{NAMESPACE}.svc,DNS:localhost"
DAYS = "3650"
"""Kueue replaces a certificate that ends within 90 days."""

LEFT_OUT = ("APIService", "Deployment", "Secret", "Service")
"""Objects that only a Kueue in a pod needs."""


def start_kueue(cluster: Cluster) -> None:
    """Install Kueue and wait until it answers. Raises Unavailable where it is not among the binaries."""
    archive, manifests = cluster.binaries / "extra/kueue.tar", cluster.binaries / "extra/kueue.yaml"
    if not archive.exists() or not manifests.exists():
        raise Unavailable(f"no Kueue: {archive} and {manifests} are not both there")
    folder = cluster.directory / "kueue"
    folder.mkdir()
    _issue_certificates(folder)
    documents = [each for each in yaml.safe_load_all(manifests.read_text()) if each and each["kind"] not in LEFT_OUT]
    port, health = free_ports(2)
    for client in (client for document in documents for client in _webhooks(document)):
        client["url"] = f"https://localhost:{port}{client.pop('service')['path']}"
        client["caBundle"] = _encoded(folder / "ca.crt")
    cluster.kubectl("create", "namespace", NAMESPACE)
    items = [*documents, _secret(folder)]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=everything)
    configuration = folder / "config.yaml"
    configuration.write_text(json.dumps(_configuration(documents, folder, port, health)))
    cluster.processes.start(
        *("kueue", _program(archive, folder), f"--config={configuration}"),
        "--feature-gates=VisibilityOnDemand=false",
        env={"KUBECONFIG": str(cluster.kubeconfig)},
    )
    cluster.processes.await_answer("kueue", f"http://127.0.0.1:{health}/readyz")


def _webhooks(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """How to reach each webhook and conversion of an object."""
    yield from (hook["clientConfig"] for hook in document.get("webhooks", ()))
    if document["kind"] == "CustomResourceDefinition" and "webhook" in document["spec"].get("conversion", {}):
        yield document["spec"]["conversion"]["webhook"]["clientConfig"]


def _issue_certificates(folder: Path) -> None:
    """What Kueue would make for itself, but for the address; it replaces what is not of this very form."""
    authority, authority_key = folder / "ca.crt", folder / "ca.key"
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-keyout", authority_key, "-out", authority),
        *("-subj", "/CN=kueue-ca", "-addext", "subjectAltName=DNS:kueue-ca"),
    )
    openssl("rsa", "-traditional", "-in", authority_key, "-out", authority_key)
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-CA", authority, "-CAkey", authority_key),
        *("-keyout", folder / "tls.key", "-out", folder / "tls.crt", "-subj", "/CN=kueue"),
        *("-addext", f"subjectAltName={SERVED_AS}", "-addext", "extendedKeyUsage=serverAuth"),
    )


def _secret(folder: Path) -> dict[str, Any]:
    metadata = {"name": "kueue-webhook-server-cert", "namespace": NAMESPACE}
    data = {name: _encoded(folder / name) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _configuration(documents: list[dict[str, Any]], folder: Path, port: int, health: int) -> dict[str, Any]:
    """The shipped configuration with addresses of this machine."""
    shipped = next(each for each in documents if each["metadata"]["name"] == "kueue-manager-config")
    configuration: dict[str, Any] = yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])
    return configuration | {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
    }


def _program(archive: Path, folder: Path) -> Path:
    """The manager, out of its image."""
    with tarfile.open(archive) as image:
        manifest = image.extractfile("manifest.json")
        assert manifest
        (layer,) = json.load(manifest)[0]["Layers"]
        with tarfile.open(fileobj=image.extractfile(layer)) as files:
            files.extract("manager", folder, filter="data")
    return folder / "manager"
