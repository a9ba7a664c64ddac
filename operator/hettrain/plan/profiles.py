"""A pool together with its profile: what the pool says, else what the profile says, else the vendor's."""

from dataclasses import dataclass
from typing import Any

from hettrain.api.pool import Pool, Rdma, Topology
from hettrain.api.profile import ProfileSpec
from hettrain.api.vendors import VENDORS
from hettrain.plan.context import Context
from hettrain.plan.environment import nccl_variables

__all__ = ["CannotPlan", "Settings", "settings"]


class CannotPlan(Exception):
    """The pods cannot be planned. `reason` is a condition's reason, the text tells the user what to do.

    `final`: no change of the cluster makes it better.
    """

    def __init__(self, reason: str, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.reason, self.final = reason, final


@dataclass(frozen=True)
class Settings:
    """What a pool's pods get."""

    gpu_resource: str | None
    rdma: Rdma | None
    nccl: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]
    topology: Topology | None
    priority_class: str | None
    runtime_class: str | None
    groups: list[int]


def settings(pool: Pool, context: Context) -> Settings:
    """Resolve a pool. Raises CannotPlan where its profile is missing or is another vendor's."""
    profile = _profile(pool, context)
    rdma = _merged(pool.rdma, profile.rdma)
    return Settings(
        gpu_resource=pool.resource_name or profile.resource_name or VENDORS[pool.vendor].resource_name,
        rdma=rdma,
        nccl=nccl_variables(rdma, profile.nccl),
        node_selector=profile.node_selector,
        tolerations=profile.tolerations,
        topology=pool.topology or profile.topology,
        priority_class=profile.priority_class_name,
        runtime_class=profile.runtime_class_name,
        groups=profile.supplemental_groups,
    )


def _profile(pool: Pool, context: Context) -> ProfileSpec:
    if pool.profile is None:
        return ProfileSpec(vendor=pool.vendor)
    found = context.profiles.get(pool.profile)
    if found is None:
        known = ", ".join(sorted(context.profiles)) or "none"
        raise CannotPlan(
            "ProfileNotFound",
            f"pool {pool.name}: there is no HetPoolProfile {pool.profile} (there are: {known}): "
            "create it, or take pools[].profile out of the job",
        )
    if found.spec.vendor != pool.vendor:
        raise CannotPlan(
            "ProfileOfAnotherVendor",
            f"pool {pool.name} is of vendor {pool.vendor}, its profile {pool.profile} is for {found.spec.vendor}",
        )
    return found.spec


def _merged(ours: Rdma | None, defaults: Rdma | None) -> Rdma | None:
    if ours is None or defaults is None:
        return ours or defaults
    return Rdma.model_validate({**defaults.dump(), **ours.dump()})
