"""The cluster as a user of the command line sees it: jobs, pods, logs and events as plain dicts, refusals explained."""

import argparse
import difflib
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from hettrain.api.job import GROUP, PLURAL, VERSION
from hettrain.commands.base import CommandError
from hettrain.plan.names import JOB_LABEL

__all__ = ["Cluster", "NoSuchJob", "Object", "Refused", "Unreachable", "connect"]

Object = dict[str, Any]

JOBS = f"{PLURAL}.{GROUP}"

SECONDS = 30.0
"""How long an answer may take; of a stream, its first byte."""

PATIENCE = 60.0
"""How long `follow` lets the API server be away before it gives up."""

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

INSTALL = (
    "this cluster has no HetTrainingJobs: install them with\n"
    "    helm install hettrain charts/hettrain --namespace hettrain --create-namespace\n"
    "or, without the operator, kubectl apply -f crds/ (docs/install.md)"
)


class Refused(CommandError):
    """An answer other than 2xx; `status` is its HTTP status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class NoSuchJob(CommandError):
    """The job is not there."""


class Unreachable(CommandError):
    """The API server did not answer."""


def connect(options: argparse.Namespace) -> "Cluster":
    """The cluster that the flags of `add_target` name. Raises CommandError."""
    settings = client.Configuration()
    settings.retries = False
    try:
        if _in_pod(options):
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            namespace = SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
        else:
            config.load_kube_config(options.kubeconfig, options.context, settings)  # type: ignore[no-untyped-call]
            contexts, current = config.list_kube_config_contexts(options.kubeconfig)  # type: ignore[no-untyped-call]
            chosen = next((c for c in contexts if c["name"] == options.context), current)
            namespace = chosen["context"].get("namespace") or "default"
    except (config.ConfigException, OSError) as error:
        raise CommandError(f"no cluster: {error}. Set KUBECONFIG, or name a file with --kubeconfig") from None
    return Cluster(client.ApiClient(settings), options.namespace or namespace)


def _in_pod(options: argparse.Namespace) -> bool:
    named = options.kubeconfig or options.context
    files = config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION.split(":")
    return not named and SERVICE_ACCOUNT_NAMESPACE.exists() and not any(Path(f).expanduser().exists() for f in files)


class Cluster:
    """One namespace of a cluster. Everything raises CommandError with a text for the reader."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    # -- jobs
    def job(self, name: str) -> Object:
        """A job. Raises NoSuchJob, which names others that it may have been meant to be."""
        return self._on_job("get", "GET", name)

    def jobs(self, everywhere: bool = False) -> list[Object]:
        """The jobs of the namespace, or of all of them."""
        return self._list(JOBS, self._jobs_path(everywhere), everywhere=everywhere)

    def change(self, name: str, patch: Object) -> Object:
        """Merge a patch into a job."""
        return self._on_job("patch", "PATCH", name, patch)

    def delete(self, name: str) -> None:
        """Delete a job; its pods go with it."""
        self._on_job("delete", "DELETE", name, {"propagationPolicy": "Background"})

    def follow(self, name: str, seconds: float, refresh: float = 10) -> Iterator[Object | None]:
        """The job now, after each of its changes and at least every `refresh` seconds, for so many seconds; None, and
        nothing after it, once it is deleted. An API server that goes away is given a minute to come back."""
        deadline, answered = time.monotonic() + seconds, time.monotonic()
        job = self.job(name)
        uid = job["metadata"]["uid"]
        while True:
            yield job
            for change in self._changes(job, min(refresh, deadline - time.monotonic())):
                if change["type"] == "DELETED":
                    yield None
                    return
                yield change["object"]
            while True:
                if time.monotonic() >= deadline:
                    return
                try:
                    job = self.job(name)
                except NoSuchJob:
                    yield None
                    return
                except Unreachable:
                    if time.monotonic() - answered > PATIENCE:
                        raise
                    time.sleep(min(1, max(0, deadline - time.monotonic())))
                else:
                    answered = time.monotonic()
                    break
            if job["metadata"]["uid"] != uid:
                yield None
                return

    # -- what belongs to them
    def pods(self, job: str, attempt: int | None = None) -> list[Object]:
        """The pods of a job, or of one of its attempts."""
        selector = f"{JOB_LABEL}={job}" + (f",{GROUP}/attempt={attempt}" if attempt is not None else "")
        return self._list("pods", self._path("pods"), {"labelSelector": selector})

    def events(self, kind: str, name: str | None = None) -> list[Object]:
        """The events about one object of a kind, or about all of them."""
        selector = f"involvedObject.kind={kind}" + (f",involvedObject.name={name}" if name else "")
        return self._list("events", self._path("events"), {"fieldSelector": selector})

    def log(
        self, pod: str, container: str, follow: bool = False, since: int | None = None, tail: int | None = None
    ) -> Iterator[str]:
        """The lines of a container's log, each with its time in front; `follow`: until the container ends."""
        query = {"container": container, "follow": follow, "timestamps": True, "sinceSeconds": since, "tailLines": tail}
        given = {key: str(value).lower() for key, value in query.items() if value is not None}
        # A rank may be silent for as long as it likes.
        timeout = (SECONDS, None) if follow else (SECONDS, SECONDS)
        path = f"{self._path('pods')}/{pod}/log"
        response = self._open("get", "pods/log", "GET", path, given, timeout=timeout)
        yield from (line.decode(errors="replace").rstrip("\n") for line in _lines(response))

    def usage(self, job: str | None = None, everywhere: bool = False) -> list[Object] | None:
        """What the pods of a job, or of all jobs, use; None where no metrics server says."""
        namespace = "" if everywhere else f"/namespaces/{self.namespace}"
        selector = {"labelSelector": f"{JOB_LABEL}={job}" if job else JOB_LABEL}
        path = f"/apis/metrics.k8s.io/v1beta1{namespace}/pods"
        try:
            return self._list("pods.metrics.k8s.io", path, selector, everywhere)
        except Refused as error:
            if error.status in (404, 503):
                return None
            raise

    # -- requests
    def _path(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}"

    def _jobs_path(self, everywhere: bool = False) -> str:
        namespace = "" if everywhere else f"/namespaces/{self.namespace}"
        return f"/apis/{GROUP}/{VERSION}{namespace}/{PLURAL}"

    def _on_job(self, verb: str, method: str, name: str, body: Object | None = None) -> Object:
        try:
            return self._ask(verb, JOBS, method, f"{self._jobs_path()}/{name}", body=body)
        except Refused as error:
            if error.status != 404:
                raise
        try:
            others = [job["metadata"]["name"] for job in self.jobs()]
        except Refused:  # whoever may get a job need not be allowed to list them
            others = []
        raise NoSuchJob(_no_such(name, self.namespace, others))

    def _list(self, resource: str, path: str, query: Object | None = None, everywhere: bool = False) -> list[Object]:
        try:
            items: list[Object] = self._ask("list", resource, "GET", path, query, everywhere=everywhere)["items"]
        except Refused as error:
            if error.status == 404 and resource == JOBS:
                raise CommandError(INSTALL) from None
            raise
        return items

    def _changes(self, job: Object, seconds: float) -> Iterator[Object]:
        """What a watch tells of a job within some seconds; it may end earlier, and then has missed what comes next."""
        if seconds <= 0:
            return
        metadata = job["metadata"]
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={metadata['name']}",
            "resourceVersion": metadata["resourceVersion"],
            "timeoutSeconds": str(math.ceil(seconds)),
        }
        path, timeout = self._jobs_path(), (SECONDS, seconds)
        try:
            for line in _lines(self._open("watch", JOBS, "GET", path, query, timeout=timeout)):
                change = json.loads(line)
                if change["type"] == "ERROR":  # the version is too old to start from: the caller looks anew
                    return
                yield change
        except Unreachable:
            return

    def _ask(
        self,
        verb: str,
        resource: str,
        method: str,
        path: str,
        query: Object | None = None,
        body: Object | None = None,
        everywhere: bool = False,
    ) -> Object:
        response = self._open(verb, resource, method, path, query, body, everywhere)
        answer: Object = json.loads(b"".join(_lines(response)))
        return answer

    def _open(
        self,
        verb: str,
        resource: str,
        method: str,
        path: str,
        query: Object | None = None,
        body: Object | None = None,
        everywhere: bool = False,
        timeout: tuple[float, float | None] = (SECONDS, SECONDS),
    ) -> urllib3.BaseHTTPResponse:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response: urllib3.BaseHTTPResponse = self._api.call_api(*request, _request_timeout=timeout).response
            if response.status < 300:
                return response
            answer = response.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from None
        raise _refused(verb, resource, None if everywhere else self.namespace, response.status, answer)

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"the API server {self._api.configuration.host} does not answer: {error}")


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    try:
        yield from response
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"the API server ended its answer early: {error}") from None
    finally:
        response.close()


def _refused(verb: str, resource: str, namespace: str | None, status: int, answer: bytes) -> Refused:
    try:
        message = json.loads(answer)["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.decode(errors="replace").strip()
    where = f"namespace {namespace}" if namespace else "all namespaces"
    if status == 403 and "cannot" in message:
        role = "clusterrole" if namespace is None else f"role --namespace {namespace}"
        text = (
            f"no access: this needs the verb {verb} on {resource} in {where}. Whoever grants it may use\n"
            f"    kubectl create {role} hettrain-user --verb={verb} --resource={resource}\n"
            f"and a binding to you. The API server says: {message}"
        )
    elif status == 401:
        text = f"the API server does not know who you are: renew the credentials of your kubeconfig ({message})"
    else:
        text = f"{verb} {resource} in {where}: {status} {message}"
    return Refused(text, status)


def _no_such(name: str, namespace: str, others: list[str]) -> str:
    text = f"there is no HetTrainingJob {name} in namespace {namespace}"
    close = difflib.get_close_matches(name, others, n=3, cutoff=0.5)
    if close:
        return f"{text}: did you mean {' or '.join(close)}?"
    if others:
        more = f", and {len(others) - 10} more" if len(others) > 10 else ""
        return f"{text}. There are: {', '.join(sorted(others)[:10])}{more}"
    return f"{text}, and no other: choose a namespace with -n"
