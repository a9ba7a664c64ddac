"""The vendors that a pool can name: data, and the only place of the operator that lists them."""

from dataclasses import dataclass

__all__ = ["GPU_VENDORS", "VENDORS", "Vendor"]


@dataclass(frozen=True)
class Vendor:
    """What the operator must know of a vendor. `resource_name` is None where its ranks need no device."""

    resource_name: str | None


VENDORS = {
    "nvidia": Vendor(resource_name="nvidia.com/gpu"),
    "amd": Vendor(resource_name="amd.com/gpu"),
    "cpu": Vendor(resource_name=None),
}

GPU_VENDORS = tuple(name for name, vendor in VENDORS.items() if vendor.resource_name)
