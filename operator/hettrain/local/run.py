"""A job on this machine: the operator's reconcile, its actions carried out with processes."""

import asyncio
import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hettrain.actions import Action, AskQueue, AskReport, Create, CreateToken, Delete, Try
from hettrain.api import HetPoolProfile, HetTrainingJob
from hettrain.api.scheduling import Scheduling
from hettrain.local.console import Screen, rank_map
from hettrain.local.node import Node, program_of
from hettrain.local.replica import adopt_orphans
from hettrain.plan import Context, members, plan
from hettrain.plan.names import ATTEMPT_LABEL, INDEX_LABEL, POOL_LABEL
from hettrain.reconcile import Children, reconcile
from hettrain.report import ask_report

__all__ = ["Options", "run_locally"]

STOP_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL after Ctrl-C: everything is gone within 5."""

INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True)
class Options:
    """`folder` is where replicas run; `logs` gets one file a replica; `summary` gets the result as JSON."""

    folder: Path
    logs: Path | None = None
    summary: Path | None = None


def run_locally(job: HetTrainingJob, profiles: Mapping[str, HetPoolProfile], options: Options) -> int:
    """Run a job to its end. Returns an exit code: 0 complete, 1 failed, 130 interrupted.

    Raises CannotRun where the job asks for what only a cluster has, before anything has started.
    """
    adopt_orphans()
    hetccl = job.spec.hetccl.model_copy(update={"simulate": True})
    # Whom to wait for is a cluster's business, too.
    ours = {"hetccl": hetccl, "suspend": False, "scheduling": Scheduling()}
    metadata = job.metadata.model_copy(update={"labels": {}})
    job = job.model_copy(update={"metadata": metadata, "spec": job.spec.model_copy(update=ours)})
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
        for old in options.logs.glob(f"{job.metadata.name}-*.log"):
            old.unlink()
    with tempfile.TemporaryDirectory(prefix="hettrain-") as scratch, Screen(job) as screen:
        home = Path(scratch) / "tree"
        subprocess.run([sys.executable, "-m", "hetccl", "inject", home], check=True, stdout=subprocess.DEVNULL)
        port, report_port = _free_ports(2)
        context = Context(
            delivery="Host",
            image="",
            home=str(home),
            profiles=profiles,
            address=lambda _job, _pod: ("127.0.0.1", port),
            token_file=lambda attempt: f"{scratch}/token-{attempt}",
            report_port=report_port,
            report_poll_seconds=1,
        )
        first = plan(job, 0, members(job), context)
        config_maps = {each["metadata"]["name"]: each["data"] for each in first.config_maps}
        for pod in first.pods:
            program_of(pod.manifest, config_maps)
        return asyncio.run(_Run(job, context, options, screen).to_the_end())


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class _Run:
    def __init__(self, job: HetTrainingJob, context: Context, options: Options, screen: Screen) -> None:
        self._job, self._context, self._options = job, context, options
        self._screen = screen
        self._ranks = list(rank_map(job))
        self._exit_codes: dict[tuple[str, int], int | None] = {}
        self._services: set[str] = set()
        self._tokens: dict[int, str] = {}
        self._report: Mapping[str, Any] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._stopping = False
        self._node = Node(options.folder, options.logs, screen.line, self._changed.set)
        self._started = time.monotonic()

    async def to_the_end(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        self._screen.rank_map(self._ranks)
        try:
            while not self._stopping and not self._over():
                await self._turn()
        finally:
            if self._stopping:
                self._screen.say("interrupted: stopping every process", "yellow")
            await self._node.stop(STOP_GRACE)
        return self._close()

    def _stop(self) -> None:
        self._stopping = True
        self._changed.set()

    def _over(self) -> bool:
        done = any(c.type in ("Complete", "Failed") and c.status == "True" for c in self._job.status.conditions)
        running = any(pod["status"]["phase"] == "Running" for pod in self._node.pods.values())
        return done and not running

    async def _turn(self) -> None:
        """Reconcile once, do what it asks for, wait until something changes."""
        self._changed.clear()
        children = Children([*self._node.pods.values()], frozenset(self._services), report=self._report)
        for pod in children.pods:
            self._note_exit(pod)
        outcome = reconcile(self._job, children, datetime.now(UTC), self._context)
        self._job = self._job.model_copy(update={"status": outcome.status})
        for action in outcome.actions:
            self._do(action)
        for event in outcome.events:
            self._screen.event(event)
        status = outcome.status
        self._screen.state(status.state, status.summary.ready, time.monotonic() - self._started)
        wait = 1.0 if outcome.requeue_after is None else min(outcome.requeue_after, 1.0)
        try:
            await asyncio.wait_for(self._changed.wait(), wait)
        except TimeoutError:
            return

    def _do(self, action: Action) -> None:
        match action:
            case Create(manifest=manifest):
                name = manifest["metadata"]["name"]
                match manifest["kind"]:
                    case "Pod":
                        self._node.create(manifest)
                    case "Service":
                        self._services.add(name)
                    case "ConfigMap":
                        self._node.config_maps[name] = manifest["data"]
                self._changed.set()
            case CreateToken():
                attempt = self._job.status.attempt
                self._tokens[attempt] = secrets.token_hex()
                file = Path(self._context.token_file(attempt))
                file.touch(0o600)
                file.write_text(self._tokens[attempt])
            case Delete(kind="Pod", name=name, uid=uid):
                self._node.delete(name, uid)
            case Delete():
                pass  # the scratch folder goes as a whole
            case AskQueue() | Try():
                pass  # this machine has no queues and drops no field
            case AskReport(address=address, port=port):
                if self._asking is None or self._asking.done():
                    self._asking = asyncio.get_running_loop().create_task(self._ask(address, port))

    async def _ask(self, address: str, port: int) -> None:
        token = self._tokens[self._job.status.attempt]
        self._report = await ask_report(address, port, token) or self._report
        self._changed.set()

    def _note_exit(self, pod: Mapping[str, Any]) -> None:
        labels = pod["metadata"]["labels"]
        terminated = pod["status"]["containerStatuses"][0]["state"].get("terminated")
        if terminated and labels[ATTEMPT_LABEL] == str(self._job.status.attempt):
            self._exit_codes[labels[POOL_LABEL], int(labels[INDEX_LABEL])] = terminated["exitCode"]

    def _close(self) -> int:
        status = self._job.status
        seconds = time.monotonic() - self._started
        state = "Interrupted" if self._stopping else status.state
        if self._options.summary is not None:
            summary = {
                "state": state,
                "world_size": status.world_size,
                "restarts": status.restarts,
                "ranks": [
                    {key: rank[key] for key in ("rank", "pool", "vendor", "simulated")}
                    | {"exit_code": self._exit_codes.get((rank["pool"], rank["replica"]))}
                    for rank in self._ranks
                ],
                "seconds": round(seconds, 3),
            }
            self._options.summary.write_text(json.dumps(summary, indent=2) + "\n")
        self._screen.say(f"{state} after {seconds:.1f} s, {status.restarts} restarts")
        if self._stopping:
            return INTERRUPTED
        return 0 if state == "Complete" else 1
