"""A job that finished stays finished."""

from hettrain.policies.verdicts import Settled
from hettrain.status.view import View

__all__ = ["settled"]


def settled(view: View) -> Settled | None:
    """Complete and Failed are for good."""
    return Settled() if view.holds("Complete") or view.holds("Failed") else None
