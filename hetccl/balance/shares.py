"""How many samples of a global batch each rank takes: pure arithmetic."""

from collections.abc import Sequence

__all__ = ["divide", "step_time"]


def divide(total: int, speeds: Sequence[float], limits: Sequence[int] | None = None, quantum: int = 1) -> list[int]:
    """`total` samples over ranks of these `speeds` (samples a second, any unit), so that the slowest is done soonest.

    Every rank gets at least one sample and at most its limit. Sizes are multiples of `quantum` but for one rank's,
    which takes what does not divide. Raises ValueError where that cannot be done.
    """
    ranks = len(speeds)
    if total < ranks:
        raise ValueError(f"{total} samples do not go round {ranks} ranks: at least one for each")
    if min(speeds) <= 0:
        raise ValueError(f"a rank has the speed {min(speeds)}: speeds are above 0")
    ceilings = list(limits) if limits is not None else [total] * ranks
    if sum(ceilings) < total or min(ceilings) < 1:
        raise ValueError(f"limits {ceilings} have no room for {total} samples")
    quantum = quantum if total // quantum >= ranks and min(ceilings) >= quantum else 1
    units = total // quantum
    rooms = [ceiling // quantum for ceiling in ceilings]
    shares = _units(min(units, sum(rooms)), speeds, rooms)
    sizes = [share * quantum for share in shares]
    for _ in range(total - sum(sizes)):
        open_ranks = [rank for rank in range(ranks) if sizes[rank] < ceilings[rank]]
        sizes[min(open_ranks, key=lambda rank: (sizes[rank] % quantum == 0, (sizes[rank] + 1) / speeds[rank]))] += 1
    return sizes


def _units(total: int, speeds: Sequence[float], rooms: Sequence[int]) -> list[int]:
    """What is due by speed, rounded down, and the rest one by one to whoever is done with one more the soonest."""
    whole = sum(speeds)
    shares = [min(room, max(1, int(total * speed / whole))) for speed, room in zip(speeds, rooms, strict=True)]
    ranks = range(len(speeds))
    while sum(shares) > total:
        shares[max((r for r in ranks if shares[r] > 1), key=lambda r: shares[r] / speeds[r])] -= 1
    while sum(shares) < total:
        shares[min((r for r in ranks if shares[r] < rooms[r]), key=lambda r: (shares[r] + 1) / speeds[r])] += 1
    return shares


def step_time(sizes: Sequence[int], speeds: Sequence[float]) -> float:
    """How long the slowest rank takes for its share: what a step costs, in the unit of 1 / speed."""
    return max(size / speed for size, speed in zip(sizes, speeds, strict=True))
