"""What schedules cost on a machine of islands, and what no schedule can beat. Pure; docs/plans.md has the model."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hetccl.plan import collectives
from hetccl.plan.schedule import Schedule, Wire

__all__ = ["PLANS", "Machine", "best", "bound", "cost"]

ELEMENT = 4
"""Bytes: what is weighed are collectives of float32."""


@dataclass(frozen=True)
class Machine:
    """Islands of ranks (numbered through), joined by wires.

    `rails` is how many wires lead out of each island. Bandwidths are bytes/s in each direction: `inside` of each rank
    in its island, `wire` of each rail. Latencies are seconds until a message's first byte is there; `overhead` is what
    a rank works for each peer that it sends to or receives from.
    """

    islands: tuple[int, ...]
    rails: tuple[int, ...]
    inside: float
    wire: float
    inside_latency: float
    wire_latency: float
    overhead: float

    def __post_init__(self) -> None:
        if len(self.rails) != len(self.islands):
            raise ValueError(f"{len(self.rails)} numbers of rails for {len(self.islands)} islands: one each is needed")

    @property
    def ranks(self) -> int:
        """How many there are in all islands."""
        return sum(self.islands)

    @cached_property
    def island_of(self) -> tuple[int, ...]:
        """The island of each rank."""
        return tuple(number for number, size in enumerate(self.islands) for _ in range(size))

    def latency(self, one: int, other: int) -> float:
        """Between two ranks, in seconds."""
        return self.inside_latency if self.island_of[one] == self.island_of[other] else self.wire_latency


def cost(schedules: Sequence[Schedule], machine: Machine) -> float:
    """Seconds: the busiest link or rank, as if all else hid behind it, and the longest chain of messages."""
    bandwidth: defaultdict[tuple[str, str, int], float] = defaultdict(float)
    operands = [0] * machine.ranks
    for rank, schedule in enumerate(schedules):
        for step in schedule.steps:
            operands[rank] += sum(isinstance(source, Wire) for source in step.sources)
            for target in step.targets:
                if not isinstance(target, Wire):
                    continue
                operands[rank] += 1
                here, there = machine.island_of[rank], machine.island_of[target.peer]
                kind, sender, receiver = ("rank", rank, target.peer) if here == there else ("island", here, there)
                bandwidth[kind, "out", sender] += step.count * ELEMENT
                bandwidth[kind, "in", receiver] += step.count * ELEMENT
    busiest = max((_seconds(machine, kind, n, load) for (kind, _, n), load in bandwidth.items()), default=0.0)
    return max(busiest, max(operands) * machine.overhead) + _chain(schedules, machine)


def _seconds(machine: Machine, kind: str, number: int, load: float) -> float:
    return load / (machine.inside if kind == "rank" else machine.wire * machine.rails[number])


def _chain(schedules: Sequence[Schedule], machine: Machine) -> float:
    """Seconds until the last step can begin, if messages took nothing but their latencies."""
    first = [0]
    for schedule in schedules:
        first.append(first[-1] + len(schedule.steps))
    senders: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for rank, schedule in enumerate(schedules):
        for index, step in enumerate(schedule.steps):
            for target in step.targets:
                if isinstance(target, Wire):
                    senders[rank, target.peer, target.lane].append(first[rank] + index)
    received: dict[tuple[int, int, int], Iterator[int]] = {lane: iter(steps) for lane, steps in senders.items()}
    waiting = [0] * first[-1]
    followers: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for rank, schedule in enumerate(schedules):
        for index, step in enumerate(schedule.steps):
            own = first[rank] + index
            before = [(first[rank] + earlier, 0.0) for earlier in step.after]
            for source in step.sources:
                if isinstance(source, Wire):
                    sent = next(received[source.peer, rank, source.lane])
                    before.append((sent, machine.latency(source.peer, rank)))
            waiting[own] = len(before)
            for earlier, latency in before:
                followers[earlier].append((own, latency))
    start = [0.0] * first[-1]
    ready = [step for step, missing in enumerate(waiting) if not missing]
    while ready:
        current = ready.pop()
        for follower, latency in followers[current]:
            start[follower] = max(start[follower], start[current] + latency)
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return max(start, default=0.0)


def _shares(count: int, size: int) -> list[int]:
    return [length for _, length in collectives.pieces(count, size)]


_Planner = Callable[[int, int, int], Schedule]

PLANS: dict[str, dict[str, _Planner]] = {
    "all_reduce": {
        "owners": collectives.all_reduce,
        "exchange": lambda rank, size, count: collectives.all_reduce(rank, size, count, exchange=True),
    },
    "reduce": {"owners": lambda rank, size, count: collectives.reduce(rank, size, count, 0)},
    "reduce_scatter": {
        "direct": lambda rank, size, count: collectives.reduce_scatter(rank, _shares(count, size)),
    },
    "all_gather": {"direct": lambda rank, size, count: collectives.all_gather(rank, _shares(count, size))},
    "broadcast": {"scattered": lambda rank, size, count: collectives.broadcast(rank, size, count, 0)},
    "all_to_all": {
        "direct": lambda rank, size, count: collectives.all_to_all(
            rank, *[[-(-count // size)] * size for _ in ("sent", "received")]
        ),
    },
}
"""The plans of each collective: from rank, ranks and elements (of the larger of input and output); the root is 0."""


def best(op: str, size: int, machine: Machine) -> tuple[str, float]:
    """Name and seconds of the cheapest plan of `op` for `size` bytes."""
    count = max(1, size // ELEMENT)
    weighed = {
        name: cost([planner(rank, machine.ranks, count) for rank in range(machine.ranks)], machine)
        for name, planner in PLANS[op].items()
    }
    name = min(weighed, key=lambda each: weighed[each])
    return name, weighed[name]


def bound(op: str, size: int, machine: Machine) -> float:
    """Seconds that no plan of `op` for `size` bytes can beat, where an island's wires are no faster than its ranks."""
    ranks = machine.ranks
    if ranks == 1:
        return 0.0
    within, across = _all_to_all_bytes(size, machine) if op == "all_to_all" else _combined_bytes(op, size, machine)
    wires = [machine.wire * rails for rails in machine.rails]
    crossing = max(load / wire for load, wire in zip(across, wires, strict=True))
    many = len(machine.islands)
    if many > 1 and op != "all_to_all":
        crossing = max(crossing, (2 if op == "all_reduce" else 1) * (many - 1) * size / sum(wires))
    latency = machine.wire_latency if many > 1 else machine.inside_latency
    return max(crossing, max(within) / machine.inside) + latency


def _combined_bytes(op: str, size: int, machine: Machine) -> tuple[list[float], list[float]]:
    """Of each island: bytes of its busiest rank inside, bytes over its wires in the busier direction."""
    several = len(machine.islands) > 1
    twice = 2 if op == "all_reduce" else 1
    within = [twice * size * (n - 1) / n for n in machine.islands]
    if not several:
        return within, [0.0]
    if op in ("all_gather", "reduce_scatter"):
        return within, [size * max(n, machine.ranks - n) / machine.ranks for n in machine.islands]
    return within, [float(size)] * len(machine.islands)


def _all_to_all_bytes(size: int, machine: Machine) -> tuple[list[float], list[float]]:
    ranks = machine.ranks
    return [size * (n - 1) / ranks for n in machine.islands], [size * n * (ranks - n) / ranks for n in machine.islands]
