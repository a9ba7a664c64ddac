"""A pool: pods of one vendor."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from hettrain.api.base import Model, OpenModel, Rule
from hettrain.api.vendors import GPU_VENDORS, VENDORS

__all__ = [
    "LABEL",
    "NAME_BUDGET",
    "Container",
    "EnvVar",
    "PodSpec",
    "PodTemplate",
    "Pool",
    "Rdma",
    "ResourceName",
    "Topology",
    "VendorName",
]

NAME_BUDGET = 63 - len("-99999-") - len("-0000")
"""Characters left for the job's and the pool's name in `<job>-<attempt>-<pool>-<replica>`, a host name."""

LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


def _known_vendor(name: str) -> str:
    if name not in VENDORS:
        raise ValueError(f"no such vendor; there are {', '.join(VENDORS)}")
    return name


VendorName = Annotated[str, AfterValidator(_known_vendor), Field(json_schema_extra={"enum": list(VENDORS)})]
ResourceName = Annotated[str, Field(min_length=1, max_length=253)]


class Rdma(Model):
    """How pods of a pool reach the RDMA network."""

    rules: ClassVar = (
        Rule(
            "!has(self.count) || has(self.resourceName)",
            "count counts what resourceName names: set rdma.resourceName too, or remove rdma.count",
            lambda self: self.count is None or self.resource_name is not None,
            "count",
        ),
    )

    resource_name: ResourceName | None = Field(
        None, description="Extended resource of the RDMA device plug-in, for example rdma/hca_shared_devices_a."
    )
    count: int | None = Field(None, ge=1, le=64, description="How many of resourceName each pod gets; 1 if not set.")
    networks: list[Annotated[str, Field(min_length=1, max_length=317)]] = Field(
        default_factory=list,
        max_length=16,
        description="Multus networks, `name` or `namespace/name`, attached to each pod.",
    )
    ib_hca: str | None = Field(None, max_length=1024, description="NCCL_IB_HCA of the pool's ranks.")
    gid_index: int | None = Field(
        None, ge=0, le=255, description="NCCL_IB_GID_INDEX of the pool's ranks; chosen by address where not set."
    )


class Topology(Model):
    """How the pods of a pool lie to each other."""

    key: str = Field(
        min_length=1, max_length=316, description="Label of nodes whose value says where they stand: rack, block, zone."
    )
    mode: Literal["Pack", "Spread"] = Field(
        description="Pack: all pods where that label has one value. Spread: evenly over its values."
    )


class EnvVar(Model):
    """An environment variable."""

    name: str = Field(min_length=1, max_length=256, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")
    value: str = Field("", max_length=32768)


class Container(OpenModel):
    """A container of Kubernetes' own, declared as far as we look into it."""

    name: str = Field(min_length=1, max_length=63)


class PodSpec(OpenModel):
    """A pod's spec of Kubernetes' own, declared as far as we look into it."""

    rules: ClassVar = (
        Rule(
            "!has(self.hostname) && !has(self.subdomain)",
            "hostname and subdomain name the ranks and are set by the operator: remove them from the template",
            lambda self: self.hostname is None and self.subdomain is None,
            "hostname",
        ),
    )

    containers: list[Container] = Field(
        min_length=1,
        max_length=32,
        description="The container named `trainer`, else the first, runs the ranks.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    restart_policy: Literal["Never"] | None = Field(
        None, description="A failed pod restarts the whole gang by failurePolicy, never alone."
    )
    hostname: str | None = Field(None, max_length=253, description="Set by the operator.")
    subdomain: str | None = Field(None, max_length=253, description="Set by the operator.")


class TemplateMetadata(Model):
    """What a template may say about its pods' metadata."""

    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    annotations: dict[str, str] = Field(default_factory=dict, max_length=64)


class PodTemplate(Model):
    """The user's pod: image, command, volumes and whatever else Kubernetes knows."""

    metadata: TemplateMetadata = Field(
        default_factory=TemplateMetadata, description="Labels and annotations of the pool's pods."
    )
    spec: PodSpec = Field(description="The pod's spec, as in a Deployment.")


class Pool(Model):
    """Pods of one vendor."""

    rules: ClassVar = (
        Rule(
            f"!(self.vendor in {list(GPU_VENDORS)}) || has(self.gpusPerReplica) || has(self.nprocPerNode)",
            "gpusPerReplica is missing: a pool of a GPU vendor says how many GPUs each pod gets "
            "(or nprocPerNode, where the template itself asks for the devices)",
            lambda self: self.vendor not in GPU_VENDORS or bool(self.gpus_per_replica or self.nproc_per_node),
            "gpusPerReplica",
        ),
        Rule(
            f"self.vendor in {list(GPU_VENDORS)} || !has(self.gpusPerReplica)",
            "gpusPerReplica is for GPU vendors only: remove it, and set nprocPerNode to the processes of each pod",
            lambda self: self.vendor in GPU_VENDORS or self.gpus_per_replica is None,
            "gpusPerReplica",
        ),
        Rule(
            "!has(self.minReplicas) || self.minReplicas <= self.replicas",
            "minReplicas is more than replicas: lower it, or raise replicas",
            lambda self: self.min_replicas is None or self.min_replicas <= self.replicas,
            "minReplicas",
        ),
        Rule(
            "!has(self.maxReplicas) || self.maxReplicas >= self.replicas",
            "maxReplicas is less than replicas: raise it, or lower replicas",
            lambda self: self.max_replicas is None or self.max_replicas >= self.replicas,
            "maxReplicas",
        ),
        Rule(
            "!has(self.resourceName) || has(self.gpusPerReplica)",
            "resourceName names what gpusPerReplica counts: set gpusPerReplica too, or remove resourceName",
            lambda self: self.resource_name is None or self.gpus_per_replica is not None,
            "resourceName",
        ),
    )

    name: str = Field(
        min_length=1,
        max_length=NAME_BUDGET - 1,
        pattern=LABEL,
        description="Name of the pool: lower case letters, digits and dashes, a letter first. Part of its pods' names.",
    )
    vendor: VendorName = Field(description="Whose devices the pool's ranks use; cpu is for simulation and tests.")
    profile: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="A HetPoolProfile of the cluster that supplies what is left out here.",
    )
    replicas: int = Field(1, ge=1, le=10000, description="Pods (nodes) of the pool.")
    min_replicas: int | None = Field(
        None, ge=1, le=10000, description="The fewest pods of the pool in an elastic job; replicas if not set."
    )
    max_replicas: int | None = Field(
        None, ge=1, le=10000, description="The most pods of the pool in an elastic job; replicas if not set."
    )
    gpus_per_replica: int | None = Field(None, ge=1, le=64, description="GPUs of each pod.")
    nproc_per_node: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Processes that the template's command starts in each pod (PET_NPROC_PER_NODE, which torchrun "
        "reads). May differ between pools. If not set: gpusPerReplica, or 1 where the pool has no GPUs.",
    )
    resource_name: ResourceName | None = Field(
        None, description="Extended resource that gpusPerReplica counts; the vendor's or the profile's if not set."
    )
    weight: float | None = Field(
        None,
        ge=0.001,
        le=1000,
        description="Speed of one process of the pool beside those of other pools, for balance.mode Static.",
    )
    rdma: Rdma | None = Field(None, description="RDMA devices and networks of each pod.")
    topology: Topology | None = Field(None, description="How the pool's pods lie to each other.")
    template: PodTemplate = Field(description="The user's own pod: it is run as it is, with hetccl mounted into it.")
