"""The events of a job. Their reasons are a contract: scripts and alerts read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hettrain.api import Condition, FirstFailure
from hettrain.status.failures import sentence

__all__ = ["Event", "Reason", "event_of_failure", "events_of_change"]


MESSAGE_LIMIT = 1024


class Reason(StrEnum):
    """Every reason that the operator gives."""

    STARTED = "Started"
    RUNNING = "Running"
    BLOCKED = "Blocked"
    RESTARTING = "Restarting"
    DISRUPTED = "Disrupted"
    RESTART_REQUESTED = "RestartRequested"
    RESIZED = "Resized"
    POD_STUCK = "PodStuck"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    POD_FAILED = "PodFailed"
    COMPLETE = "Complete"
    FAILED = "Failed"
    INJECTION_VERIFIED = "InjectionVerified"
    INJECTION_MISSING = "InjectionMissing"
    USER_SETTING = "UserSetting"
    INVALID = "InvalidJob"


WARNINGS = {
    Reason.BLOCKED,
    Reason.RESTARTING,
    Reason.DISRUPTED,
    Reason.POD_STUCK,
    Reason.POD_FAILED,
    Reason.FAILED,
    Reason.INJECTION_MISSING,
    Reason.USER_SETTING,
    Reason.INVALID,
}


@dataclass(frozen=True)
class Event:
    """Something that the user may want to know."""

    reason: Reason
    message: str

    @property
    def type(self) -> str:
        """`Warning` or `Normal`."""
        return "Warning" if self.reason in WARNINGS else "Normal"


ON_CHANGE = {
    ("Blocked", "True"): Reason.BLOCKED,
    ("PodsReady", "True"): Reason.RUNNING,
    ("Suspended", "True"): Reason.SUSPENDED,
    ("Suspended", "False"): Reason.RESUMED,
    ("Complete", "True"): Reason.COMPLETE,
    ("Failed", "True"): Reason.FAILED,
    ("InjectionVerified", "True"): Reason.INJECTION_VERIFIED,
    ("InjectionVerified", "False"): Reason.INJECTION_MISSING,
}


def event_of_failure(first: FirstFailure) -> Event:
    """The failure that ended an attempt, with as much of the end of its traceback as an event holds."""
    said = sentence(first)
    room = MESSAGE_LIMIT - len(said) - 1
    return Event(Reason.POD_FAILED, f"{said}\n{first.traceback[-room:]}" if first.traceback.strip() else said)


def events_of_change(before: Sequence[Condition], after: Sequence[Condition]) -> list[Event]:
    """The events that a change of conditions is worth: one for each that turned, or is Blocked for another reason."""
    old = {condition.type: condition for condition in before}
    result = []
    for condition in after:
        reason = ON_CHANGE.get((condition.type, condition.status))
        was = old.get(condition.type)
        turned = was is None or was.status != condition.status
        if reason is not None and (turned or (reason is Reason.BLOCKED and was and was.reason != condition.reason)):
            text = f"{condition.reason}: {condition.message}" if reason is Reason.BLOCKED else condition.message
            result.append(Event(reason, text))
    return result
