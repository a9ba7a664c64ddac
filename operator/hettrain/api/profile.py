"""HetPoolProfile: what a platform team knows of its pools, so that users need not."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hettrain.api.base import Model
from hettrain.api.job import Metadata
from hettrain.api.pool import Rdma, ResourceName, Topology, VendorName

__all__ = ["KIND", "PLURAL", "HetPoolProfile", "ProfileSpec"]

KIND, PLURAL = "HetPoolProfile", "hetpoolprofiles"

_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


class ProfileSpec(Model):
    """Defaults of the pools that name this profile: what a pool or its template says itself wins."""

    vendor: VendorName = Field(description="The vendor of the pools that may use this profile.")
    resource_name: ResourceName | None = Field(
        None, description="Extended resource that gpusPerReplica counts; the vendor's usual one if not set."
    )
    rdma: Rdma | None = Field(None, description="RDMA devices and networks; a pool overrides it field by field.")
    nccl: dict[Annotated[str, Field(pattern=r"^NCCL_[A-Z0-9_]+$")], str] = Field(
        default_factory=dict,
        max_length=64,
        description="NCCL_* variables of the pool's ranks; the user's own env and envFrom win.",
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Added to the pods' nodeSelector."
    )
    tolerations: list[Annotated[dict[str, Any], Field(json_schema_extra=_ANYTHING)]] = Field(
        default_factory=list, max_length=64, description="Added to the pods' tolerations."
    )
    topology: Topology | None = Field(None, description="How the pods of a pool that says nothing lie to each other.")
    priority_class_name: str | None = Field(
        None, min_length=1, max_length=253, description="Priority class where neither template nor job names one."
    )
    runtime_class_name: str | None = Field(
        None, min_length=1, max_length=253, description="Runtime class of pods whose template names none."
    )
    supplemental_groups: list[Annotated[int, Field(ge=1, le=2147483647)]] = Field(
        default_factory=list,
        max_length=16,
        description="Groups that own the device files (render, video), for pods that do not run as root.",
    )


class HetPoolProfile(Model):
    """Cluster-wide defaults of pools."""

    api_version: Literal["hetccl.io/v1alpha1"]
    kind: Literal["HetPoolProfile"]
    metadata: Metadata
    spec: ProfileSpec = Field(description="Defaults of the pools that name this profile.")
