"""The ranks of a group find each other in torch's store; what they say there is authenticated by the job's token."""

import hmac
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Protocol

from hetccl.errors import AuthenticationError, ResourceError
from hetccl.topology import Rank, Topology
from hetccl.wires.handshake import PROTOCOL

__all__ = ["Store", "gather"]


class Store(Protocol):
    """What is used of a torch.distributed.Store."""

    def add(self, key: str, amount: int) -> int: ...
    def set(self, key: str, value: str) -> Any: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def wait(self, keys: list[str], timeout: timedelta) -> Any: ...


def gather(store: Store, rank: int, size: int, own: Rank, token: bytes, timeout: float) -> tuple[Topology, int]:
    """Every rank's facts, and the number of the group that rank 0 drew.

    Raises ResourceError that names the ranks which did not join within `timeout` seconds or speak another protocol, and
    AuthenticationError that names one with another token.
    """
    body = json.dumps({"protocol": PROTOCOL, "group": secrets.randbits(47), "rank": asdict(own)})
    deadline = time.monotonic() + timeout
    try:
        # torchrun's store outlives a group, and the next one meets under the same name: each reads its own.
        generation = (store.add("joined", 1) - 1) // size
        store.set(_key(generation, rank), f"{_mac(token, rank, size, body)} {body}")
        said = [_read(store, generation, number, size, token, deadline) for number in range(size)]
    except RuntimeError as error:
        if isinstance(error, (ResourceError, AuthenticationError)):
            raise
        raise ResourceError(
            f"rank {rank}: the store at MASTER_ADDR does not answer while {size} ranks join: {error}"
        ) from error
    ranks = tuple(_rank(document["rank"]) for document in said)
    return Topology(ranks), int(said[0]["group"])


def _key(generation: int, rank: int) -> str:
    return f"{generation}/rank/{rank}"


def _mac(token: bytes, rank: int, size: int, body: str) -> str:
    return hmac.new(token, f"hetccl rank {rank} of {size} {body}".encode(), "sha256").hexdigest()


def _read(store: Store, generation: int, rank: int, size: int, token: bytes, deadline: float) -> dict[str, Any]:
    left = max(0.001, deadline - time.monotonic())
    try:
        store.wait([_key(generation, rank)], timedelta(seconds=left))
    except RuntimeError:
        if time.monotonic() < deadline:
            raise
        missing = [number for number in range(size) if not store.check([_key(generation, number)])]
        raise ResourceError(
            f"of {size} ranks these did not join in time: {_list(missing)}. Look at their logs: a rank that runs "
            "without hetccl, or that failed earlier, never joins"
        ) from None
    mac, _, body = store.get(_key(generation, rank)).decode().partition(" ")
    if not hmac.compare_digest(mac, _mac(token, rank, size, body)):
        raise AuthenticationError(
            f"rank {rank} does not have this job's token: HETCCL_TOKEN_FILE differs, or a stranger writes to the store"
        )
    document: dict[str, Any] = json.loads(body)
    if document["protocol"] != PROTOCOL:
        raise ResourceError(
            f"rank {rank} has release {document['rank'].get('release')} of hetccl, which speaks protocol "
            f"{document['protocol']}; this rank speaks {PROTOCOL}: use one release in all pools"
        )
    return document


def _rank(facts: dict[str, Any]) -> Rank:
    addresses = tuple((address, port) for address, port in facts["addresses"])
    return Rank(**{**facts, "addresses": addresses})


def _list(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:16]))
    return f"ranks {shown}{' ...' if len(ranks) > 16 else ''}" if len(ranks) > 1 else f"rank {shown}"
