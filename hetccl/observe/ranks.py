"""Who takes part in a group, for people (the log) and for the operator (the report)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import hetccl
from hetccl.settings import HOST_VENDOR


class Member(Protocol):
    """What a rank says of itself when it joins."""

    @property
    def vendor(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def python(self) -> str: ...
    @property
    def torch(self) -> str: ...


def has_gpu(member: Member) -> bool:
    """True where the rank works on a GPU."""
    return member.vendor != HOST_VENDOR and not member.simulated


def rank_map(members: Sequence[Member]) -> list[str]:
    """One line for each run of ranks that are alike in all that is told of them."""

    def told(rank: int) -> str:
        member = members[rank]
        simulated = ", simulated on the CPU" if member.simulated else ""
        where = f"host {member.host}, torch {member.torch}, Python {member.python}"
        return f"pool {member.pool} ({member.vendor}{simulated}), {where}"

    return [f"{spans(ranks)}: {text}" for text, ranks in groupby(range(len(members)), told)]


def spans(ranks: Iterable[int]) -> str:
    """Ranks in words: 'rank 3', 'ranks 0-2, 5'."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"ranks {text}" if sum(map(len, runs)) > 1 else f"rank {text}"


def report(job: str, members: Sequence[Member]) -> Mapping[str, Any]:
    """The document of GET /v1/report, as docs/architecture.md describes it."""
    return {
        "version": hetccl.__version__,
        "job": job,
        "world_size": len(members),
        "ranks": [
            {
                "rank": rank,
                "pool": member.pool,
                "vendor": member.vendor,
                # torch's name for a GPU, whoever made it.
                "device": "cuda" if has_gpu(member) else "cpu",
                "simulated": member.simulated,
                "host": member.host,
                "python": member.python,
                "torch": member.torch,
            }
            for rank, member in enumerate(members)
        ],
    }
