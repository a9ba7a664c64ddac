"""This machine as a node: pods are processes, shown with the fields that the API server would show."""

import asyncio
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hettrain.local.replica import Replica
from hettrain.plan.names import POOL_LABEL
from hettrain.plan.pods import trainer_name
from hettrain.status.times import write_time

__all__ = ["CannotRun", "Node", "program_of"]

OURS = re.compile(r"^(PET_|HETCCL_|TORCHELASTIC_)|^(MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|LOCAL_RANK|PYTHONPATH)$")
"""What must not reach a replica from the shell that hettrain was started in."""

DEFAULT_GRACE = 30.0
REFERENCE = re.compile(r"\$(\$|\((\w+)\))")

Pod = dict[str, Any]


class CannotRun(ValueError):
    """A pod asks for something that only a cluster has."""


@dataclass(frozen=True)
class Program:
    """What the trainer container of a pod runs."""

    container: str
    command: list[str]
    environment: dict[str, str]


def program_of(pod: Pod, config_maps: Mapping[str, Mapping[str, str]]) -> Program:
    """Command and environment of a pod's trainer. Raises CannotRun where they need what only a cluster has."""
    container = _trainer(pod)
    environment = _base_environment() | _environment(pod, container, config_maps)
    command = [_expand(word, environment) for word in (*container["command"], *container.get("args", ()))]
    return Program(container["name"], command, environment)


class Node:
    """Runs pods as processes in `folder`, one log file each in `logs` where that is given.

    `line(pod, text)` gets each line of output; `changed()` is called whenever a pod changes.
    """

    def __init__(
        self, folder: Path, logs: Path | None, line: Callable[[Pod, str], None], changed: Callable[[], None]
    ) -> None:
        self._folder, self._logs = folder, logs
        self._line, self._changed = line, changed
        self._replicas: dict[str, Replica] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.pods: dict[str, Pod] = {}
        self.config_maps: dict[str, Mapping[str, str]] = {}

    def create(self, manifest: Pod) -> None:
        """Start a pod. Raises CannotRun where it needs what only a cluster has."""
        name = manifest["metadata"]["name"]
        if name in self.pods:
            return
        program = program_of(manifest, self.config_maps)
        pod = {**manifest, "metadata": {**manifest["metadata"], "uid": str(uuid.uuid4())}}
        pod["status"] = _running(program.container)
        self.pods[name] = pod
        self._start(self._run(pod, program))

    def delete(self, name: str, uid: str | None) -> None:
        """End a pod: SIGTERM to its main process, SIGKILL to what is left after its grace period, then it is gone."""
        pod = self.pods.get(name)
        if pod is None or uid not in (None, pod["metadata"]["uid"]) or "deletionTimestamp" in pod["metadata"]:
            return
        grace = float(pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE))
        pod["metadata"]["deletionTimestamp"] = write_time(datetime.now(UTC) + timedelta(seconds=grace))
        replica = self._replicas.get(name)
        if replica is None:
            del self.pods[name]
        else:
            replica.terminate()
            asyncio.get_running_loop().call_later(grace, replica.signal_all, signal.SIGKILL)
        self._changed()

    async def stop(self, grace: float) -> None:
        """End every pod within `grace` seconds and a moment."""
        for replica in self._replicas.values():
            replica.terminate()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for replica in self._replicas.values():
            replica.signal_all(signal.SIGKILL)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, pod: Pod, program: Program) -> None:
        name = pod["metadata"]["name"]
        log = (self._logs / f"{name}.log").open("w") if self._logs else None

        def line(text: str) -> None:
            if log is not None:
                print(text, file=log, flush=True)
            self._line(pod, text)

        replica = self._replicas[name] = Replica(name, line)
        code = await replica.run(program.command, program.environment, self._folder)
        del self._replicas[name]
        if log is not None:
            log.close()
        pod["status"] = _ended(program.container, code, replica.message if code else "")
        if "deletionTimestamp" in pod["metadata"]:
            del self.pods[name]
        self._changed()


def _trainer(pod: Pod) -> dict[str, Any]:
    spec = pod["spec"]
    name = trainer_name(spec)
    container: dict[str, Any] = next(c for c in spec["containers"] if c["name"] == name)
    if not container.get("command"):
        raise CannotRun(f"{_where(pod)}: container {name} has no command: without its image there is nothing to run")
    return container


def _environment(
    pod: Pod, container: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """A container's variables, as the kubelet resolves them: envFrom in order, then env, references expanded."""
    result: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        reference = source.get("configMapRef", {})
        known = config_maps.get(reference.get("name", ""))
        if known is not None:
            result |= {source.get("prefix", "") + key: value for key, value in known.items()}
        elif not next(iter(source.values())).get("optional"):
            raise CannotRun(f"{_where(pod)}: envFrom {source} exists only in a cluster: mark it optional, or remove it")
    for entry in container.get("env", ()):
        if "valueFrom" in entry:
            value = _field(pod, entry)
            if value is not None:
                result[entry["name"]] = value
        else:
            result[entry["name"]] = _expand(entry.get("value", ""), result)
    return result


def _where(pod: Pod) -> str:
    return f"pool {pod['metadata']['labels'][POOL_LABEL]}"


def _base_environment() -> dict[str, str]:
    """This process's own, with the interpreter that runs it (and its torchrun) first on PATH."""
    inherited = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    path = f"{Path(sys.executable).parent}:{inherited.get('PATH', os.defpath)}"
    return {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **inherited, "PATH": path}


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes expands it: unknown names stay, `$$` is a dollar."""

    def replace(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return variables.get(match[2], match[0])

    return REFERENCE.sub(replace, text)


def _field(pod: Pod, entry: Mapping[str, Any]) -> str | None:
    source = entry["valueFrom"]
    path = source.get("fieldRef", {}).get("fieldPath", "")
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
        "spec.nodeName": "localhost",
    }
    if path in known:
        return str(known[path])
    if any(reference.get("optional") for reference in source.values()):
        return None
    raise CannotRun(f"{_where(pod)}: env {entry['name']} comes from {source}, which exists only in a cluster")


def _running(container: str) -> dict[str, Any]:
    now = write_time(datetime.now(UTC))
    return {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "startTime": now,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": container, "ready": True, "state": {"running": {"startedAt": now}}}],
    }


def _ended(container: str, code: int, message: str) -> dict[str, Any]:
    now = write_time(datetime.now(UTC))
    terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message, "finishedAt": now}
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": container, "ready": False, "state": {"terminated": terminated}}],
    }
