"""The API server, as far as the operator needs it. Objects are dicts."""

import asyncio
import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import kopf

from hettrain.api.job import GROUP, VERSION

__all__ = ["FIELD_MANAGER", "ApiError", "Kube", "Unreachable", "kind_of", "login"]

log = logging.getLogger(__name__)

FIELD_MANAGER = "hettrain"
MAX_IN_FLIGHT = 32
LOGIN_SECONDS = 60.0
"""How long credentials are used before they are read again: a service account's token changes in its file."""

TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=10)
PATIENT_TRIES = 5
LONGEST_RETRY_AFTER = 30.0
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

RESOURCES = {
    "ClusterQueue": ("apis/kueue.x-k8s.io/v1beta2", "clusterqueues"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Event": ("api/v1", "events"),
    "HetPoolProfile": (f"apis/{GROUP}/{VERSION}", "hetpoolprofiles"),
    "HetTrainingJob": (f"apis/{GROUP}/{VERSION}", "hettrainingjobs"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "LocalQueue": ("apis/kueue.x-k8s.io/v1beta2", "localqueues"),
    "Node": ("api/v1", "nodes"),
    "Pod": ("api/v1", "pods"),
    "PodGroup.scheduling.k8s.io": ("apis/scheduling.k8s.io/v1beta1", "podgroups"),
    "PodGroup.scheduling.volcano.sh": ("apis/scheduling.volcano.sh/v1beta1", "podgroups"),
    "PodGroup.scheduling.x-k8s.io": ("apis/scheduling.x-k8s.io/v1alpha1", "podgroups"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "ValidatingWebhookConfiguration": (
        "apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
    ),
    "Workload": ("apis/kueue.x-k8s.io/v1beta2", "workloads"),
}
"""API and plural of every kind that the operator touches; kinds that several groups have carry the group's name."""


PLURALS = frozenset(plural for _, plural in RESOURCES.values())


class ApiError(Exception):
    """An answer other than 2xx. `reason` is the API server's own word for it, `causes` its details."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {body.get('reason', '')}: {body.get('message', '')}")
        self.status = status
        self.reason: str = body.get("reason") or ""
        self.message: str = body.get("message") or ""
        self.causes: list[str] = [cause.get("reason", "") for cause in (body.get("details") or {}).get("causes") or ()]


class Unreachable(Exception):
    """The API server did not answer."""


def kind_of(manifest: Mapping[str, Any]) -> str:
    """What an object's kind is called here."""
    kind: str = manifest["kind"]
    full = f"{kind}.{manifest['apiVersion'].partition('/')[0]}"
    return full if full in RESOURCES else kind


def login() -> kopf.ConnectionInfo:
    """Credentials of the pod's service account, else of the kubeconfig as the library `kubernetes` reads it: with
    exec plug-ins and all. Raises kopf.LoginError."""
    settings = kopf.OperatorSettings()
    info = kopf.login_with_service_account(settings=settings, logger=log)
    if info is not None:
        # By address, as every in-cluster client does: the operator then works before the cluster's DNS does.
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        return dataclasses.replace(info, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")
    info = kopf.login_via_client(settings=settings, logger=log)
    if info is None:
        raise kopf.LoginError("found neither a service account nor a kubeconfig: set KUBECONFIG")
    return info


class Kube:
    """A client. Requests take turns, and wait as long as the API server asks for (429 and 503 with Retry-After).

    Every request raises ApiError for an answer other than 2xx and Unreachable for none.
    """

    def __init__(self, answered: Callable[[str, str, int], None] | None = None) -> None:
        """`answered` is told of every request: verb, resource and the answer's code, 0 for none."""
        self._answered = answered or _nobody
        self._info, self._read_at = login(), time.monotonic()
        self._turns = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._info.as_ssl_context(), limit=MAX_IN_FLIGHT)
        self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any]:
        """One object."""
        return await self._request("GET", _path(kind, namespace, name))

    async def list_metadata(self, kind: str, namespace: str | None, selector: str = "") -> list[dict[str, Any]]:
        """The metadata of all objects of a kind; all namespaces if none is named."""
        parameters = {"labelSelector": selector} if selector else {}
        answer = await self._request("GET", _path(kind, namespace), parameters=parameters, accept=METADATA_ONLY)
        return [item["metadata"] for item in answer["items"]]

    async def list_all(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind, as the API server has them in its cache."""
        answer = await self._request("GET", _path(kind, None), parameters={"resourceVersion": "0"})
        found: list[dict[str, Any]] = answer["items"]
        return found

    async def create(self, manifest: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        """A new object, as the API server stored it."""
        path = _path(kind_of(manifest), manifest["metadata"].get("namespace"))
        parameters = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        return await self._request("POST", path, manifest, parameters=parameters)

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """An object as a whole; its resourceVersion, if given, must still be the one stored (else 409)."""
        metadata = manifest["metadata"]
        return await self._request(
            "PUT", _path(manifest["kind"], metadata.get("namespace"), metadata["name"]), manifest
        )

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete in the background, with its own grace period. With `uid`: only that very object (else 409)."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        await self._request("DELETE", _path(kind, namespace, name), options)

    async def apply_status(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Server-side apply of a status. Its metadata's uid and resourceVersion must be those stored (else 409)."""
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"]) + "/status"
        parameters = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, manifest, parameters, content="application/apply-patch+yaml")

    async def serves_jobs(self) -> bool:
        """Whether the CRDs are installed."""
        try:
            await self._request("GET", f"apis/{GROUP}/{VERSION}")
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        parameters: Mapping[str, str] | None = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> dict[str, Any]:
        data = json.dumps(body).encode() if body is not None else None
        for attempt in range(1, PATIENT_TRIES + 1):
            headers = {"Accept": accept, "Content-Type": content, "User-Agent": "hettrain", **self._credentials()}
            try:
                async with (
                    self._turns,
                    self._session.request(
                        method, f"{self._info.server}/{path}", data=data, params=parameters, headers=headers
                    ) as response,
                ):
                    answer = await response.read()
                    status, retry_after = response.status, response.headers.get("Retry-After", "")
            except (aiohttp.ClientError, TimeoutError) as error:
                self._answered(method, _resource(path), 0)
                raise Unreachable(f"{method} {path}: {error or type(error).__name__}") from error
            self._answered(method, _resource(path), status)
            if status in (429, 503) and retry_after.isdecimal() and attempt < PATIENT_TRIES:
                await asyncio.sleep(min(float(retry_after), LONGEST_RETRY_AFTER))
                continue
            break
        parsed = _parse(answer)
        if status >= 300:
            raise ApiError(status, parsed)
        return parsed

    def _credentials(self) -> dict[str, str]:
        if time.monotonic() - self._read_at > LOGIN_SECONDS:
            self._info, self._read_at = login(), time.monotonic()
        return self._info.as_http_headers()


def _path(kind: str, namespace: str | None, name: str | None = None) -> str:
    api, plural = RESOURCES[kind]
    return "/".join([api, *(["namespaces", namespace] if namespace else []), plural, *([name] if name else [])])


def _nobody(verb: str, resource: str, code: int) -> None:
    """Told of requests where nobody asks."""


def _resource(path: str) -> str:
    """The plural that a path is about; nothing for discovery."""
    return next((part for part in path.split("/") if part in PLURALS), "")


def _parse(answer: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(answer)
    except ValueError:
        return {"message": answer.decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"message": str(parsed)}
