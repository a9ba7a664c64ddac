"""Job to desired children: pure."""

from dataclasses import dataclass
from typing import Any

from hettrain.api import HetTrainingJob
from hettrain.plan.context import Context
from hettrain.plan.objects import config_map, disruption_budget, service, token_secret
from hettrain.plan.pods import PlannedPod, plan_pod
from hettrain.plan.profiles import CannotPlan, settings
from hettrain.plan.ranks import Member, members, processes_per_pod, world_size

__all__ = [
    "CannotPlan",
    "Context",
    "Member",
    "Plan",
    "PlannedPod",
    "members",
    "plan",
    "processes_per_pod",
    "world_size",
]


@dataclass(frozen=True)
class Plan:
    """Everything that one attempt consists of. `token` is a Secret whose token is still to be made."""

    service: dict[str, Any]
    token: dict[str, Any]
    config_maps: tuple[dict[str, Any], ...]
    budgets: tuple[dict[str, Any], ...]
    pods: tuple[PlannedPod, ...]

    @property
    def warnings(self) -> list[str]:
        """What the user should know, each text once."""
        return list(dict.fromkeys(warning for pod in self.pods for warning in pod.warnings))


def plan(job: HetTrainingJob, attempt: int, wanted: list[Member], context: Context) -> Plan:
    """The children of one attempt, with the pods of the members that are wanted. Raises CannotPlan."""
    resolved = {pool.name: settings(pool, context) for pool in job.spec.pools}
    return Plan(
        service=service(job),
        token=token_secret(job, attempt),
        config_maps=tuple(config_map(job, attempt, name, found.nccl) for name, found in resolved.items() if found.nccl),
        budgets=(disruption_budget(job, attempt),) if job.spec.disruption_budget == "Gang" else (),
        pods=tuple(plan_pod(job, member, attempt, resolved[member.pool.name], context) for member in wanted),
    )
