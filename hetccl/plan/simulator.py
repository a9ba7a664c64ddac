"""Runs the schedules of all ranks at once, on numpy, to prove them: every result right, every message matched, every
element of a result written once, whatever the order in which steps that nothing orders take their turns."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetccl.plan.schedule import Buffer, Operand, Schedule, Space, Wire

__all__ = ["ScheduleError", "simulate"]

Array = npt.NDArray[np.float64]
MESSAGE = 7
"""Elements of a message: so few, so that small schedules are streams of several."""


class ScheduleError(AssertionError):
    """The schedules do not fit together."""


@dataclass
class _Step:
    sources: tuple[Operand, ...]
    targets: tuple[Operand, ...]
    count: int
    divisor: int
    waits: set[int]
    done: int = 0
    started: bool = False

    @property
    def finished(self) -> bool:
        return self.started and self.done == self.count


def simulate(
    schedules: Sequence[Schedule],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    reduce: Callable[[Array, Array], Array],
    *,
    seed: int = 0,
) -> None:
    """Run to the end, in place. inputs[r] and outputs[r] may be the same array. Raises ScheduleError."""
    chance = random.Random(seed)
    wires: dict[tuple[int, int, int], deque[Array]] = {}
    steps = [_steps(schedule) for schedule in schedules]
    scratch = [np.zeros(schedule.scratch) for schedule in schedules]
    written = [np.zeros(output.size, dtype=int) for output in outputs]
    pending = [(rank, index) for rank, own in enumerate(steps) for index in range(len(own))]
    while pending:
        chance.shuffle(pending)
        moved = False
        for rank, index in pending:
            step = steps[rank][index]
            if any(not steps[rank][earlier].finished for earlier in step.waits):
                continue
            memory = {Space.INPUT: inputs[rank], Space.OUTPUT: outputs[rank], Space.SCRATCH: scratch[rank]}
            moved |= _advance(step, rank, memory, wires, written[rank], reduce)
        pending = [(rank, index) for rank, index in pending if not steps[rank][index].finished]
        if pending and not moved:
            raise ScheduleError(f"nothing can go on; waiting: {sorted(pending)}")
    if left := {channel: len(queue) for channel, queue in wires.items() if queue}:
        raise ScheduleError(f"messages (from, to, lane) that nobody received: {left}")
    for rank, times in enumerate(written):
        if times.size and times.max() > 1:
            raise ScheduleError(f"rank {rank} writes element {int(times.argmax())} of its output {times.max()} times")


def _steps(schedule: Schedule) -> list[_Step]:
    steps: list[_Step] = []
    last: dict[tuple[bool, int, int], int] = {}
    for index, step in enumerate(schedule.steps):
        waits = set(step.after)
        for sending, operands in ((False, step.sources), (True, step.targets)):
            for operand in operands:
                if isinstance(operand, Wire):
                    key = (sending, operand.peer, operand.lane)
                    waits |= {last[key]} if key in last else set()
                    last[key] = index
        steps.append(_Step(step.sources, step.targets, step.count, step.divisor, waits))
    return steps


def _advance(
    step: _Step,
    rank: int,
    memory: dict[Space, Array],
    wires: dict[tuple[int, int, int], deque[Array]],
    written: npt.NDArray[np.int_],
    reduce: Callable[[Array, Array], Array],
) -> bool:
    if step.finished:
        return False
    incoming = [wires.get((o.peer, rank, o.lane)) for o in step.sources if isinstance(o, Wire)]
    if not all(incoming):
        return False
    size = min(MESSAGE, step.count - step.done)
    result: Array | None = None
    for operand in step.sources:
        if isinstance(operand, Wire):
            value = wires[operand.peer, rank, operand.lane].popleft()
            if value.size != size:
                raise ScheduleError(f"rank {rank} expects {size} elements of rank {operand.peer}, got {value.size}")
        else:
            value = _slice(operand, step.done, size, memory)
        result = value.copy() if result is None else reduce(result, value)
    assert result is not None
    result = result / step.divisor
    for operand in step.targets:
        if isinstance(operand, Wire):
            wires.setdefault((rank, operand.peer, operand.lane), deque()).append(result.copy())
        else:
            _slice(operand, step.done, size, memory)[:] = result
            if operand.space is Space.OUTPUT:
                written[operand.offset + step.done : operand.offset + step.done + size] += 1
    step.done += size
    step.started = True
    return True


def _slice(operand: Buffer, done: int, size: int, memory: dict[Space, Array]) -> Array:
    whole = memory[operand.space]
    begin = operand.offset + done
    if begin + size > whole.size:
        raise ScheduleError(f"{operand} at {begin} + {size} is outside of a buffer of {whole.size}")
    return whole[begin : begin + size]
