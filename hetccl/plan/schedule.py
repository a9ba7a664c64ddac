"""Schedules: steps that are assignments (docs/architecture.md, "plans are data")."""

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Buffer", "Operand", "Schedule", "Space", "Step", "Wire", "flatten"]


class Space(IntEnum):
    """Where an operand lies."""

    INPUT, OUTPUT, SCRATCH, WIRE = range(4)


@dataclass(frozen=True)
class Buffer:
    """Elements of a local buffer, from `offset` on."""

    space: Space
    offset: int = 0


@dataclass(frozen=True)
class Wire:
    """The next elements of a lane to or from a peer: as a source received, as a target sent."""

    peer: int
    lane: int = 0


Operand = Buffer | Wire


@dataclass(frozen=True)
class Step:
    """targets = reduction of sources, `count` elements each. One source is a move.

    Sources are reduced in their order; `divisor` divides the result once, before it is rounded. `after` lists earlier
    steps that must be done first. Steps that nothing orders run side by side.
    """

    sources: tuple[Operand, ...]
    targets: tuple[Operand, ...]
    count: int
    divisor: int = 1
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """The steps of one rank, and how many elements of SCRATCH they use."""

    steps: tuple[Step, ...]
    scratch: int = 0

    @property
    def peers(self) -> frozenset[int]:
        """The ranks that this one talks to."""
        operands = (operand for step in self.steps for operand in (*step.sources, *step.targets))
        return frozenset(operand.peer for operand in operands if isinstance(operand, Wire))


VERSION = 1


def flatten(schedule: Schedule, dtype: int, reduction: int) -> list[int]:
    """A schedule as the C core reads it (core/plan.c): header, steps, operands, edges, all int64.

    Steps that use the same lane in the same direction are put in order, since their messages are.
    """
    steps: list[int] = []
    operands: list[int] = []
    edges: set[tuple[int, int]] = set()
    last: dict[tuple[bool, int, int], int] = {}
    for index, step in enumerate(schedule.steps):
        places: list[int] = []
        for sending, group in ((False, step.sources), (True, step.targets)):
            places += [len(operands) // 4, len(group)]
            for operand in group:
                if isinstance(operand, Wire):
                    operands += [Space.WIRE, operand.peer, operand.lane, 0]
                    key = (sending, operand.peer, operand.lane)
                    if key in last:
                        edges.add((last[key], index))
                    last[key] = index
                else:
                    operands += [operand.space, 0, 0, operand.offset]
        edges |= {(earlier, index) for earlier in step.after}
        steps += [dtype, reduction, step.count, step.divisor, *places]
    flat_edges = [number for edge in sorted(edges) for number in edge]
    return [VERSION, len(schedule.steps), len(operands) // 4, len(edges), *steps, *operands, *flat_edges]
