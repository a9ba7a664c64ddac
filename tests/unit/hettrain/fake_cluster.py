"""A cluster as a dictionary: it stores what a reconcile asks for, and tests play kubelet, scheduler and bad luck."""

import copy
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from hettrain.actions import Action, AskReport, Create, CreateToken, Delete, Refusal
from hettrain.api import HetTrainingJob, JobStatus
from hettrain.kube import kind_of
from hettrain.plan import Context
from hettrain.plan.names import ATTEMPT_LABEL
from hettrain.reconcile import Children, Outcome, reconcile
from hettrain.status.times import parse_time, write_time

from tests.unit.hettrain.documents import CONTEXT

GRACE = timedelta(seconds=30)


class FakeCluster:
    """One job and its children. `restart_operator` forgets whatever only the operator's memory holds."""

    def __init__(self, job: HetTrainingJob, context: Context = CONTEXT) -> None:
        self.job, self.context = job, context
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.pods: dict[str, dict[str, Any]] = {}
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.taken: dict[tuple[str, str], str] = {}
        self.created: list[str] = []
        self.events: list[str] = []
        self.asked: list[AskReport] = []
        self.gone = False
        self.refusals: tuple[Refusal, ...] = ()
        self.report: dict[str, Any] | None = None
        self.workload: dict[str, Any] | None = None
        self._uids = itertools.count()

    @property
    def status(self) -> JobStatus:
        return self.job.status

    def condition(self, kind: str) -> tuple[str, str]:
        found = next((c for c in self.status.conditions if c.type == kind), None)
        return (found.status, found.reason) if found else ("", "")

    def change(self, **spec: Any) -> None:
        self.job = self.job.model_copy(update={"spec": self.job.spec.model_copy(update=spec)})

    def ask_restart(self, value: str) -> None:
        annotated = self.job.metadata.model_copy(update={"annotations": {"hetccl.io/restart": value}})
        self.job = self.job.model_copy(update={"metadata": annotated})

    # -- the operator
    def children(self) -> Children:
        services = frozenset(name for kind, name in self.objects if kind == "Service")
        return Children(copy.deepcopy(list(self.pods.values())), services, self.refusals, self.report, self.workload)

    def look(self) -> Outcome:
        return reconcile(self.job, self.children(), self.now, self.context)

    def reconcile(self, steps: int | None = None) -> Outcome:
        """One reconcile. With `steps`, the operator dies after so many writes (the status is the first)."""
        outcome = self.look()
        if steps == 0:
            return outcome
        self.job = self.job.model_copy(update={"status": outcome.status})
        refusals: list[Refusal] = []
        for action in outcome.actions[: None if steps is None else steps - 1]:
            refused = self._act(action)
            if refused is not None:
                refusals.append(refused)
                break
        self.events += [event.reason.value for event in outcome.events]
        if steps is not None:
            self.refusals, self.report = (), None
        elif tuple(refusals) != self.refusals:
            self.refusals = tuple(refusals)
            self.job = self.job.model_copy(update={"status": self.look().status})
        return outcome

    def settle(self) -> None:
        """Reconcile until there is nothing to do but wait for somebody else."""
        for _ in range(50):
            before = (self.status, list(self.pods))
            outcome = self.reconcile()
            if (self.status, list(self.pods)) == before:
                if outcome.requeue_after is None or not self._waits(outcome):
                    return
                self.now += timedelta(seconds=outcome.requeue_after)
            self._reap()
        raise AssertionError(f"does not settle: {self.status}")

    def _waits(self, outcome: Outcome) -> bool:
        """Whether a pause or a pod that leaves is waited for: not rank 0's report, a taken name or a deadline."""
        start, attempt = self.status.next_restart_time, str(self.status.attempt)
        paused = start is not None and parse_time(start) > self.now
        old = any(pod["metadata"]["labels"][ATTEMPT_LABEL] != attempt for pod in self.pods.values())
        return (
            (paused or old)
            and not self.refusals
            and not any(isinstance(action, AskReport) for action in outcome.actions)
        )

    def _act(self, action: Action) -> Refusal | None:
        match action:
            case Create(manifest=manifest) | CreateToken(manifest=manifest):
                kind, name = kind_of(manifest), manifest["metadata"]["name"]
                if owner := self.taken.get((kind, name)):
                    return Refusal(kind, name, "NameTaken", f"{kind} {name} belongs to {owner}")
                if kind == "Pod":
                    if name not in self.pods:
                        self._add_pod(copy.deepcopy(manifest))
                else:
                    self.objects.setdefault((kind, name), manifest)
            case Delete(kind="Pod", name=name, uid=uid):
                if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
                    self.ask_deletion(name)
            case Delete(kind="HetTrainingJob", name=name, uid=uid):
                assert (name, uid) == (self.job.metadata.name, self.job.metadata.uid)
                self.gone = True
            case Delete(kind=kind, name=name):
                self.objects.pop((kind, name), None)
            case AskReport():
                self.asked.append(action)
        return None

    def _add_pod(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        manifest["metadata"]["uid"] = f"uid-{next(self._uids)}"
        manifest["status"] = {"phase": "Pending"}
        self.pods[name] = manifest
        self.created.append(name)

    # -- everybody else
    def ask_deletion(self, name: str) -> None:
        self.pods[name]["metadata"].setdefault("deletionTimestamp", write_time(self.now + GRACE))

    def _reap(self) -> None:
        """The kubelets finish off what is leaving, except on lost nodes."""
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if "deletionTimestamp" not in pod["metadata"] or pod["spec"].get("nodeName") == "lost"
        }

    def run(self, *names: str) -> None:
        for name in names or list(self.pods):
            pod = self.pods[name]
            if pod["status"]["phase"] == "Pending":
                pod["spec"].setdefault("nodeName", "node")
                pod["status"] = {
                    "phase": "Running",
                    "podIP": "10.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{"name": "trainer", "state": {"running": {}}}],
                }

    def end(
        self, name: str, code: int = 0, reason: str = "Error", message: str = "", *, ago: float = 10, **status: Any
    ) -> None:
        """The trainer ended so many seconds ago, and the kubelet says so now."""
        terminated = {"exitCode": code, "reason": reason if code else "Completed", "message": message}
        terminated["finishedAt"] = write_time(self.now - timedelta(seconds=ago))
        self.pods[name]["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "trainer", "state": {"terminated": terminated}}],
            **status,
        }

    def evict(self, name: str) -> None:
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self.pods[name]["status"].setdefault("conditions", []).append(target)
        self.ask_deletion(name)

    def lose_node(self, name: str) -> None:
        self.pods[name]["spec"]["nodeName"] = "lost"
        self.ask_deletion(name)

    def admit(self) -> None:
        """Kueue looks at all pods that wait for it, and lets them go."""
        for pod in self.pods.values():
            pod["spec"].pop("schedulingGates", None)

    def manage(self) -> None:
        """Kueue's webhook has seen the pods."""
        for name, pod in self.pods.items():
            pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = "true"
            pod["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/role-hash"] = name.split("-")[2]

    def take_back(self, reason: str, message: str) -> None:
        """Kueue evicts the gang."""
        target = {"type": "TerminationTarget", "status": "True", "reason": reason, "message": message}
        for name, pod in self.pods.items():
            pod["status"].setdefault("conditions", []).append(target)
            self.ask_deletion(name)

    def vanish(self, name: str) -> None:
        del self.pods[name]
