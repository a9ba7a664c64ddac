"""Conditions: how they are merged, and the one word that sums them up."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from hettrain.api import Condition
from hettrain.status.times import write_time

__all__ = ["Claim", "merge_conditions", "state_of"]

Claim = tuple[str, Literal["True", "False", "Unknown"], str, str]
"""Type, status, reason and message of a condition."""

ORDER = (
    "Suspended",
    "Blocked",
    "PreflightPassed",
    "PodsReady",
    "InjectionVerified",
    "Restarting",
    "Complete",
    "Failed",
)
MESSAGE_LIMIT = 4096

# The first of these that holds is the state.
STATES = ("Failed", "Complete", "Suspended", "Blocked", "Restarting")


def merge_conditions(
    before: Sequence[Condition], claims: Sequence[Claim], now: datetime, generation: int
) -> list[Condition]:
    """The conditions after `claims`: a transition time moves only with its status, what nobody claims stays."""
    result = {condition.type: condition for condition in before}
    for kind, status, reason, message in claims:
        old = result.get(kind)
        same = old is not None and old.status == status
        result[kind] = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message[:MESSAGE_LIMIT],
            last_transition_time=old.last_transition_time if old is not None and same else write_time(now),
            observed_generation=generation,
        )
    return sorted(result.values(), key=lambda condition: ORDER.index(condition.type))


def state_of(conditions: Sequence[Condition]) -> str:
    """One word for `kubectl get`."""
    true = {condition.type for condition in conditions if condition.status == "True"}
    first = next((state for state in STATES if state in true), None)
    return first or ("Running" if "PodsReady" in true else "Pending")
