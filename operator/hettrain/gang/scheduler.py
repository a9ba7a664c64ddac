"""What schedulers have in common: they are told that the pods of an attempt are one group."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    def name(self) -> str:
        """Of the object that stands for it."""
        return f"{self.job.metadata.name}-{self.attempt}"

    @property
    def size(self) -> int:
        """Pods of all pools."""
        return sum(self.sizes.values())


class Scheduler(ABC):
    """One scheduler. `remedy`: what to tell the user where the cluster does not have it. `tried`: the field of a pod's
    spec that shows whether it does, by its being kept; None: the objects show it."""

    remedy: str = ""
    tried: str | None = None

    def check(self, group: Group) -> None:  # noqa: B027 - most take any group
        """Raises Refused where it can never take such a group."""

    def objects(self, group: Group) -> list[dict[str, Any]]:  # noqa: ARG002 - for those that have any
        """What must be there before the pods; their owner is added."""
        return []

    @abstractmethod
    def join(self, group: Group, pod: dict[str, Any]) -> None:
        """Make a pod one of the group. What the user's template says is changed only where it must."""
