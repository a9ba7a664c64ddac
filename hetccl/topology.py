"""Who takes part in a group, and which ranks make an island."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Rank", "Topology"]


@dataclass(frozen=True)
class Rank:
    """What a rank says of itself when it joins.

    `key` names its process (hex), `addresses` are (address, port) at which it listens, best first. `shares_memory`: its
    runner can use shared memory. `checks`: it wants every call compared on all ranks before data moves.
    """

    vendor: str
    pool: str
    host: str
    simulated: bool
    python: str
    torch: str
    pid: int
    key: str
    addresses: tuple[tuple[str, int], ...]
    shares_memory: bool
    release: str
    checks: bool = False


@dataclass(frozen=True)
class Topology:
    """The ranks of a group, in order, and the numbers that they have in the world; without `members` the same ones."""

    ranks: tuple[Rank, ...]
    members: tuple[int, ...] = ()

    def number(self, rank: int) -> int:
        """What a rank of the group is called in the world, and in every message."""
        return self.members[rank] if self.members else rank

    @cached_property
    def islands(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each vendor, islands in the order of their first ranks."""
        found: dict[str, list[int]] = {}
        for number, rank in enumerate(self.ranks):
            found.setdefault(rank.vendor, []).append(number)
        return tuple(tuple(island) for island in found.values())

    def describe(self, numbers: Sequence[int]) -> str:
        """Ranks of the group for an error: 'rank 1 (pool amd, host b), rank 2 (...)'."""
        return ", ".join(
            f"rank {self.number(rank)} (pool {self.ranks[rank].pool}, host {self.ranks[rank].host})" for rank in numbers
        )
