"""What a reconcile asks to be done. `apply.py` does it in a cluster, local mode with processes."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Action", "AskQueue", "AskReport", "Create", "CreateToken", "Delete", "Refusal", "Try"]


@dataclass(frozen=True)
class Create:
    """Create an object, after all that was listed before it. That it is there already and ours is as good.

    `remedy`: what to tell the user where the API server has no such kind.
    """

    manifest: dict[str, Any]
    remedy: str = ""


@dataclass(frozen=True)
class Try:
    """Go on only if the API server keeps a field of a pod's spec; it drops those whose feature gate is off."""

    manifest: dict[str, Any]
    field: str
    remedy: str


@dataclass(frozen=True)
class CreateToken:
    """Create a Secret with a new token in it, unless it is there and ours."""

    manifest: dict[str, Any]


@dataclass(frozen=True)
class Delete:
    """Delete an object with its own grace period; that it is gone already is as good.

    With a `uid`, only that very object and no later one of its name.
    """

    kind: str
    name: str
    uid: str | None = None


@dataclass(frozen=True)
class AskReport:
    """Ask rank 0, at `address`, for its report. `secret` holds the token of the attempt."""

    address: str
    port: int
    secret: str


@dataclass(frozen=True)
class AskQueue:
    """Ask for the object that says why the gang waits."""

    kind: str
    name: str


Action = Create | Try | CreateToken | Delete | AskReport | AskQueue


@dataclass(frozen=True)
class Refusal:
    """A creation that was refused for good: the name is somebody else's, or the API server says no.

    `reason` is a condition's reason.
    """

    kind: str
    name: str
    reason: str
    message: str
