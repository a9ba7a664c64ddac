"""What a policy can decide about a job."""

from dataclasses import dataclass

from hettrain.api import FirstFailure

__all__ = ["Finish", "Restart", "Settled", "Suspend", "Verdict"]


@dataclass(frozen=True)
class Settled:
    """The job finished earlier: nothing is decided any more."""


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
class Restart:
    """The gang starts over. `counted`: it uses up one of the job's restarts."""

    reason: str
    message: str
    counted: bool
    failure: FirstFailure | None = None


Verdict = Settled | Suspend | Finish | Restart
