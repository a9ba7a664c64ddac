"""Job to desired children: pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.gang import Group, Refused, schedulers
from hettrain.plan.context import Context
from hettrain.plan.objects import config_map, disruption_budget, metadata, service, token_secret
from hettrain.plan.pods import PlannedPod, plan_pod
from hettrain.plan.profiles import CannotPlan, settings
from hettrain.plan.ranks import Member, members, processes_per_pod, world_size

__all__ = [
    "CannotPlan",
    "Context",
    "GroupObject",
    "KeptField",
    "Member",
    "Plan",
    "PlannedPod",
    "groups",
    "members",
    "plan",
    "processes_per_pod",
    "world_size",
]


@dataclass(frozen=True)
class GroupObject:
    """An object of a scheduler's, and what to tell the user where the cluster has no such kind."""

    manifest: dict[str, Any]
    remedy: str


@dataclass(frozen=True)
class KeptField:
    """A field that the API server must keep in a pod's spec, and what to tell the user where it does not."""

    field: str
    remedy: str


@dataclass(frozen=True)
class Plan:
    """Everything that one attempt consists of. `token` is a Secret whose token is still to be made."""

    service: dict[str, Any]
    token: dict[str, Any]
    config_maps: tuple[dict[str, Any], ...]
    budgets: tuple[dict[str, Any], ...]
    groups: tuple[GroupObject, ...]
    kept: tuple[KeptField, ...]
    pods: tuple[PlannedPod, ...]

    @property
    def warnings(self) -> list[str]:
        """What the user should know, each text once."""
        return list(dict.fromkeys(warning for pod in self.pods for warning in pod.warnings))


def plan(job: HetTrainingJob, attempt: int, wanted: list[Member], context: Context) -> Plan:
    """The children of one attempt, with the pods of the members that are wanted. Raises CannotPlan."""
    resolved = {pool.name: settings(pool, context) for pool in job.spec.pools}
    pods = tuple(plan_pod(job, member, attempt, resolved[member.pool.name], context) for member in wanted)
    group = _group(job, attempt)
    _gather(group, pods)
    return Plan(
        service=service(job),
        token=token_secret(job, attempt),
        config_maps=tuple(config_map(job, attempt, name, found.nccl) for name, found in resolved.items() if found.nccl),
        budgets=(disruption_budget(job, attempt),) if job.spec.disruption_budget == "Gang" else (),
        groups=tuple(groups(job, attempt)),
        kept=tuple(KeptField(each.tried, each.remedy) for each in schedulers(job) if each.tried is not None),
        pods=pods,
    )


def groups(job: HetTrainingJob, attempt: int) -> Iterator[GroupObject]:
    """What schedulers need besides the pods of an attempt."""
    for scheduler in schedulers(job):
        for manifest in scheduler.objects(_group(job, attempt)):
            owned = metadata(job, manifest["metadata"]["name"])
            yield GroupObject({**manifest, "metadata": owned}, scheduler.remedy)


def _group(job: HetTrainingJob, attempt: int) -> Group:
    return Group(job, attempt, Counter(member.pool.name for member in members(job)))


def _gather(group: Group, pods: Sequence[PlannedPod]) -> None:
    """Make the pods a group of the schedulers that the job asks for."""
    for scheduler in schedulers(group.job):
        try:
            scheduler.check(group)
        except Refused as error:
            raise CannotPlan(error.reason, str(error), final=True) from None
        for pod in pods:
            scheduler.join(group, pod.manifest)
