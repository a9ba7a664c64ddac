"""What schedulers have in common: they are told that the pods of an attempt are one group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hettrain.api import HetTrainingJob

__all__ = ["Group", "Refused", "Scheduler"]


class Refused(Exception):
    """A group that a scheduler can never take. `reason` is a condition's reason, the text tells the user what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Group:
    """The pods of one attempt. `sizes`: how many there are of each pool."""

    job: HetTrainingJob
    attempt: int
    sizes: Mapping[str, int]

    @property
    def size(self) -> int:
        """Pods of all pools."""
        return sum(self.sizes.values())


class Scheduler(Protocol):
    """One scheduler."""

    def check(self, group: Group) -> None:
        """Raises Refused where it can never take such a group."""

    def join(self, group: Group, pool: str, pod: dict[str, Any]) -> None:
        """Make a pod of a pool one of the group. What the user's template says is changed only where it must."""
