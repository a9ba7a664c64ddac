"""What a policy can decide about a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hettrain.api import FirstFailure
from hettrain.events import Reason

__all__ = ["Counter", "Finish", "Remove", "Requeue", "Restart", "Settled", "Suspend", "Verdict"]


@dataclass(frozen=True)
class Settled:
    """The job finished earlier: nothing is decided any more."""


@dataclass(frozen=True)
class Remove:
    """The job itself goes, and with it all that is left of it."""


@dataclass(frozen=True)
class Suspend:
    """The job may have no pods now."""


@dataclass(frozen=True)
class Finish:
    """The job ends. `condition` is Complete or Failed."""

    condition: str
    reason: str
    message: str
    failure: FirstFailure | None = None


@dataclass(frozen=True)
class Requeue:
    """The gang lost its place in a queue and waits for another, as a new attempt. `reason` and message: the queue's."""

    reason: str
    message: str


Counter = Literal["restarts", "ignored_restarts"]


@dataclass(frozen=True)
class Restart:
    """The gang starts over. `counter`: the count in the status that it adds to; None: nobody is to blame, no pause.

    `caps`: the most pods that pools of an elastic job can get from now on, if that has changed.
    """

    reason: str
    message: str
    counter: Counter | None = None
    failure: FirstFailure | None = None
    event: Reason = Reason.RESTARTING
    caps: Mapping[str, int] | None = None


Verdict = Settled | Remove | Suspend | Finish | Requeue | Restart
