"""A plain client of the API server for tests: independent of the operator's own."""

import http.client
import json
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CRDS", "JOBS", "ApiServer", "Refused"]

CRDS = Path(__file__).parents[3] / "crds"
JOBS = "/apis/hetccl.io/v1alpha1/namespaces/{}/hettrainingjobs"


class Refused(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class ApiServer:
    """Requests with a kubeconfig's client certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._url = urllib.parse.urlsplit(cluster["server"])

    def __call__(self, method: str, path: str, body: Any = None, content: str = "application/json") -> dict[str, Any]:
        assert self._url.hostname is not None
        connection = http.client.HTTPSConnection(self._url.hostname, self._url.port, timeout=30, context=self._context)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": content})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read() or "{}")
        finally:
            connection.close()
        if response.status >= 300:
            raise Refused(response.status, answer.get("message", ""))
        return answer

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self("GET", path)["items"]
        return found

    def merge(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        return self("PATCH", path, patch, "application/merge-patch+json")
