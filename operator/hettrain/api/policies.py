"""What a user decides about the life of a job."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hettrain.api.base import Model, Rule

__all__ = [
    "OOM_KILLED",
    "STARTUP_DEADLINE_EXCEEDED",
    "Backoff",
    "ExitCodes",
    "FailurePolicy",
    "FailureRule",
    "SuccessPolicy",
]

OOM_KILLED = "OOMKilled"
"""The kubelet's reason for a container that ran out of memory."""

STARTUP_DEADLINE_EXCEEDED = "StartupDeadlineExceeded"
"""Our reason for a pod that was not ready in time."""


class Backoff(Model):
    """Pause before a restart; doubles with each restart after a failure."""

    rules: ClassVar = (
        Rule(
            "self.initialSeconds <= self.maxSeconds",
            "initialSeconds is above maxSeconds: lower backoff.initialSeconds or raise backoff.maxSeconds",
            lambda self: self.initial_seconds <= self.max_seconds,
            "initialSeconds",
        ),
    )

    initial_seconds: int = Field(1, ge=0, le=3600, description="Pause before the first restart, in seconds.")
    max_seconds: int = Field(300, ge=0, le=86400, description="The longest pause, in seconds.")


class ExitCodes(Model):
    """A set of exit codes, as a batch/v1 Job's podFailurePolicy has it."""

    operator: Literal["In", "NotIn"] = Field(
        description="Whether the trainer's exit code must be one of values, or none."
    )
    values: list[Annotated[int, Field(ge=1, le=255)]] = Field(
        min_length=1,
        max_length=255,
        description="Exit codes.",
    )


class FailureRule(Model):
    """What some failures mean. A failure must meet all of the conditions that the rule has."""

    rules: ClassVar = (
        Rule(
            f"self.action != 'RestartIgnoreLimit' || !has(self.onReasons) || !('{OOM_KILLED}' in self.onReasons)",
            f"a trainer that ran out of memory would restart for ever: take {OOM_KILLED} out of onReasons, "
            "or choose the action Restart or Fail",
            lambda self: self.action != "RestartIgnoreLimit" or OOM_KILLED not in self.on_reasons,
            "onReasons",
        ),
    )

    action: Literal["Fail", "Restart", "RestartIgnoreLimit"] = Field(
        description="Fail: the job fails at once. Restart: the gang restarts, counted against maxRestarts. "
        f"RestartIgnoreLimit: it restarts without being counted; never after {OOM_KILLED}."
    )
    on_exit_codes: ExitCodes | None = Field(
        None, description=f"Exit codes of the trainer that the rule is for. {OOM_KILLED} has none: it is a reason."
    )
    on_reasons: list[Annotated[str, Field(min_length=1, max_length=128)]] = Field(
        default_factory=list,
        max_length=32,
        description=f"Reasons that the rule is for: the kubelet's ({OOM_KILLED}, Error, ...), "
        f"or {STARTUP_DEADLINE_EXCEEDED}.",
    )
    pools: list[Annotated[str, Field(min_length=1, max_length=63)]] = Field(
        default_factory=list,
        max_length=16,
        description="Pools that the rule is for; all of them if not set.",
    )


class FailurePolicy(Model):
    """What happens when a pod fails."""

    max_restarts: int = Field(
        0,
        ge=0,
        le=10000,
        description="How often the gang may restart before the job fails. Disruptions (eviction, preemption, a node "
        "that shuts down) restart it too and are not counted.",
    )
    backoff: Backoff = Field(default_factory=Backoff, description="Pause before a restart.")
    # `rules` of a model are what its documents must obey.
    failure_rules: list[FailureRule] = Field(
        default_factory=list,
        alias="rules",
        max_length=32,
        description="What particular failures mean; the first that matches counts. If none does: Restart.",
    )


class SuccessPolicy(Model):
    """When a job has succeeded. A pool succeeds when the trainers of all its pods ended with 0."""

    operator: Literal["All", "Any"] = Field(
        "All", description="All: the job is Complete when every one of the pools has succeeded. Any: when one has."
    )
    pools: list[Annotated[str, Field(min_length=1, max_length=63)]] = Field(
        default_factory=list, max_length=16, description="The pools that count; all of them if not set."
    )
