"""The ranks of a group find each other in torch's store; what they say there is authenticated by the job's token.

Rank 0 of the group collects what all of them say and publishes it as one document, so that a large group asks the store
little. Whoever finds that the group cannot be made refuses it, for all: the first refusal is what every rank raises.

    joined/<rank>            how often the rank came: a store outlives a group, and the next one may have its name
    <generation>/rank/<rank> what the rank says of itself
    <generation>/all         what all of them said
    <generation>/refused     why there is no group
"""

import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import hetccl
from hetccl.errors import AuthenticationError, CollectiveError, HetcclError, ResourceError
from hetccl.topology import Rank, Topology
from hetccl.wires.handshake import PROTOCOL

__all__ = ["Meeting", "Store"]

LEADER = 0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_KINDS: dict[str, type[HetcclError]] = {
    kind.__name__: kind for kind in (AuthenticationError, CollectiveError, ResourceError)
}


class Store(Protocol):
    """What is used of a torch.distributed.Store."""

    def add(self, key: str, amount: int) -> int: ...
    def set(self, key: str, value: str) -> Any: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


class Meeting:
    """The ranks of one group in a store, until they are a group or know why not.

    `members` are the ranks of the world that make the group, in order; `rank` is a place in that list. `timeout` is in
    seconds, from now on. Raises ResourceError where the store does not answer.
    """

    def __init__(
        self, store: Store, rank: int, members: Sequence[int], token: bytes, timeout: float, *, name: str = "world"
    ) -> None:
        self._store, self._rank, self._members, self._token = store, rank, members, token
        self._group = f"group {name} of {len(members)} ranks"
        self._deadline = time.monotonic() + timeout
        self._generation = 0
        self._generation = self._ask(lambda: store.add(f"joined/{rank}", 1))

    def gather(self, own: Rank) -> tuple[Topology, int]:
        """Every rank's facts, and the number of the group, the same on all ranks.

        Raises, on every rank the same: ResourceError that names the ranks which did not join in time or speak another
        protocol; AuthenticationError that names one with another token; or what another rank refused the group with.
        """
        body = json.dumps({"protocol": PROTOCOL, "release": hetccl.__version__, "rank": asdict(own)})
        self._say(f"rank/{self._rank}", body)
        said: dict[str, Any]
        if self._rank == LEADER:
            said = {
                "protocol": PROTOCOL,
                "release": hetccl.__version__,
                "group": secrets.randbits(47),
                "ranks": self._collect(),
            }
            self._say("all", json.dumps(said))
        else:
            self._await(["all"])
            said = json.loads(self._heard("all", LEADER))
        ranks = tuple(_rank(json.loads(each)["rank"]) for each in said["ranks"])
        return Topology(ranks, tuple(self._members)), int(said["group"])

    def refuse(self, error: HetcclError) -> HetcclError:
        """There is no group, because of `error`: every other rank that is still making it raises the same. Returns what
        to raise here, which is the error that the first rank refused it with."""
        refusal = json.dumps({"kind": type(error).__name__, "text": str(error)})
        try:
            self._store.compare_set(self._key("refused"), "", self._signed("refused", refusal))
        except RuntimeError:  # the store is gone, and with it those who could read there
            return error
        return self.refusal() or error

    def refusal(self) -> HetcclError | None:
        """Why another rank refused the group, or None."""
        if not self._ask(lambda: self._store.check([self._key("refused")])):
            return None
        body = self._verified("refused", self._ask(lambda: self._store.get(self._key("refused"))))
        if body is None:
            return AuthenticationError(
                f"{self._group} was refused by one that does not have the token of rank {self._own}: "
                "HETCCL_TOKEN_FILE differs between ranks, or a stranger writes to the store"
            )
        refusal = json.loads(body)
        return _KINDS.get(refusal["kind"], HetcclError)(refusal["text"])

    @property
    def _own(self) -> int:
        return self._members[self._rank]

    def _collect(self) -> list[str]:
        """What all ranks say, each found to fit rank 0's own."""
        self._await([f"rank/{number}" for number in range(len(self._members))])
        return [self._heard(f"rank/{number}", number) for number in range(len(self._members))]

    def _heard(self, what: str, number: int) -> str:
        """What rank `number` of the group said, once it is known to be its word and to be understood."""
        value = self._ask(lambda: self._store.get(self._key(what)))
        member = self._members[number]
        body = self._verified(what, value)
        protocol, release = _protocol(value)
        if protocol != PROTOCOL:  # first: another protocol may have other signatures
            raise self.refuse(
                ResourceError(
                    f"rank {member} has release {release} of hetccl, which speaks protocol {protocol}; rank "
                    f"{self._own} has release {hetccl.__version__}, which speaks {PROTOCOL}: use one release in all "
                    "pools"
                )
            )
        if body is None:
            raise self.refuse(
                AuthenticationError(
                    f"rank {member} does not have this job's token as rank {self._own} has it: "
                    "HETCCL_TOKEN_FILE differs, or a stranger writes to the store"
                )
            )
        return body

    def _await(self, whats: Sequence[str]) -> None:
        """Wait until all of it has been said, or the group was refused, or the time is over."""
        pause, keys = _SHORTEST_PAUSE, [self._key(what) for what in whats]
        while not self._ask(lambda: self._store.check(keys)):
            refusal = self.refusal()
            if refusal is not None:
                raise refusal
            if time.monotonic() >= self._deadline:
                raise self.refuse(self._missing())
            # Asking again and again, rather than waiting in the store: a refusal is to be heard meanwhile.
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _missing(self) -> HetcclError:
        keys = {member: self._key(f"rank/{number}") for number, member in enumerate(self._members)}
        missing = [member for member, key in keys.items() if not self._ask(lambda key=key: self._store.check([key]))]  # type: ignore[misc]
        if not missing:
            return ResourceError(f"{self._group}: all joined, but rank {self._members[LEADER]} did not say so in time")
        return ResourceError(
            f"{self._group}: these did not join in time: {_list(missing)}. Look at their logs: a rank that runs "
            "without hetccl, or that failed earlier, never joins"
        )

    def _say(self, what: str, body: str) -> None:
        self._ask(lambda: self._store.set(self._key(what), self._signed(what, body)))

    def _key(self, what: str) -> str:
        return f"{self._generation}/{what}"

    def _signed(self, what: str, body: str) -> str:
        return f"{self._mac(what, body)} {body}"

    def _verified(self, what: str, value: bytes) -> str | None:
        mac, _, body = value.decode(errors="replace").partition(" ")
        return body if hmac.compare_digest(mac.encode(), self._mac(what, body).encode()) else None

    def _mac(self, what: str, body: str) -> str:
        said = f"hetccl {self._key(what)} of {len(self._members)} {body}"
        return hmac.new(self._token, said.encode(), "sha256").hexdigest()

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except RuntimeError as error:
            if isinstance(error, HetcclError):
                raise
            raise ResourceError(
                f"rank {self._own}: the store at MASTER_ADDR does not answer while the {self._group} is made: {error}"
            ) from error


def _protocol(value: bytes) -> tuple[Any, str]:
    """The protocol and the release in what somebody said, whoever it was."""
    try:
        document = json.loads(value.partition(b" ")[2])
        return document["protocol"], str(document["release"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, "unknown"


def _rank(facts: dict[str, Any]) -> Rank:
    addresses = tuple((address, port) for address, port in facts["addresses"])
    return Rank(**{**facts, "addresses": addresses})


def _list(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:16]))
    return f"ranks {shown}{' ...' if len(ranks) > 16 else ''}" if len(ranks) > 1 else f"rank {shown}"
