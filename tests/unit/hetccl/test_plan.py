"""Schedules, proved on the simulator."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetccl.plan import Buffer, Schedule, Space, Step, Wire, collectives
from hetccl.plan.schedule import flatten
from hetccl.plan.simulator import ScheduleError, simulate
from hetccl.runners.core import library

SIZES = st.integers(1, 7)
COUNTS = st.one_of(st.integers(0, 3), st.integers(0, 600))
SEEDS = st.integers(0, 2**32 - 1)
OPS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "product": np.multiply}


def values(rank: int, count: int) -> np.ndarray:
    """Whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(rank).integers(1, 5, count).astype(float)


def reduced(inputs: list[np.ndarray], op: str) -> np.ndarray:
    result = inputs[0]
    for other in inputs[1:]:
        result = OPS[op](result, other)
    return result


@settings(deadline=None, max_examples=60)
@given(SIZES, COUNTS, st.sampled_from(sorted(OPS)), st.booleans(), st.booleans(), SEEDS)
def test_all_reduce_gives_everybody_the_reduction(size, count, op, exchange, in_place, seed) -> None:
    inputs = [values(rank, count) for rank in range(size)]
    expected = reduced([each.copy() for each in inputs], op)
    outputs = inputs if in_place else [np.zeros(count) for _ in range(size)]
    plans = [collectives.all_reduce(rank, size, count, exchange=exchange) for rank in range(size)]
    simulate(plans, inputs, outputs, OPS[op], seed=seed)
    for output in outputs:
        np.testing.assert_array_equal(output, expected)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), COUNTS, SEEDS)
def test_all_reduce_gives_the_same_bits_where_the_order_of_additions_matters(size, count, seed) -> None:
    inputs = [np.random.default_rng(rank).standard_normal(count) for rank in range(size)]
    expected = reduced(inputs, "sum") / size
    for exchange in (False, True):
        outputs = [np.zeros(count) for _ in range(size)]
        plans = [collectives.all_reduce(r, size, count, divisor=size, exchange=exchange) for r in range(size)]
        simulate(plans, inputs, outputs, np.add, seed=seed)
        assert all(output.tobytes() == expected.tobytes() for output in outputs)


@settings(deadline=None, max_examples=40)
@given(SIZES, COUNTS, st.data(), SEEDS)
def test_reduce_gives_the_root_the_reduction_and_leaves_the_others_alone(size, count, data, seed) -> None:
    root = data.draw(st.integers(0, size - 1))
    inputs = [values(rank, count) for rank in range(size)]
    before = [each.copy() for each in inputs]
    plans = [collectives.reduce(rank, size, count, root) for rank in range(size)]
    simulate(plans, inputs, inputs, np.add, seed=seed)
    np.testing.assert_array_equal(inputs[root], reduced(before, "sum"))
    for rank in set(range(size)) - {root}:
        np.testing.assert_array_equal(inputs[rank], before[rank])


@settings(deadline=None, max_examples=40)
@given(st.lists(COUNTS, min_size=1, max_size=6), SEEDS)
def test_reduce_scatter_gives_each_rank_its_range_of_uneven_ones(counts, seed) -> None:
    size, total = len(counts), sum(counts)
    inputs = [values(rank, total) for rank in range(size)]
    outputs = [np.zeros(count) for count in counts]
    plans = [collectives.reduce_scatter(rank, counts) for rank in range(size)]
    simulate(plans, inputs, outputs, np.add, seed=seed)
    whole = reduced(inputs, "sum")
    for rank, offset in enumerate(list(accumulate(counts, initial=0))[:-1]):
        np.testing.assert_array_equal(outputs[rank], whole[offset : offset + counts[rank]])


@settings(deadline=None, max_examples=40)
@given(st.lists(COUNTS, min_size=1, max_size=6), st.booleans(), st.data(), SEEDS)
def test_gathers_and_scatters_move_uneven_ranges_to_their_places(counts, to_all, data, seed) -> None:
    size, total = len(counts), sum(counts)
    root = data.draw(st.integers(0, size - 1))
    parts = [values(rank, count) for rank, count in enumerate(counts)]
    whole = np.concatenate(parts)
    outputs = [np.zeros(total) for _ in range(size)]
    if to_all:
        plans = [collectives.all_gather(rank, counts) for rank in range(size)]
    else:
        plans = [collectives.gather(rank, counts, root) for rank in range(size)]
    simulate(plans, parts, outputs, np.add, seed=seed)
    for rank, output in enumerate(outputs):
        np.testing.assert_array_equal(output, whole if to_all or rank == root else np.zeros(total))

    back = [np.zeros(count) for count in counts]
    inputs = [whole if rank == root else back[rank] for rank in range(size)]
    simulate([collectives.scatter(rank, counts, root) for rank in range(size)], inputs, back, np.add, seed=seed)
    for rank in range(size):
        np.testing.assert_array_equal(back[rank], parts[rank])


@settings(deadline=None, max_examples=40)
@given(SIZES, COUNTS, st.data(), SEEDS)
def test_broadcast_gives_everybody_what_the_root_has(size, count, data, seed) -> None:
    root = data.draw(st.integers(0, size - 1))
    tensors = [values(rank, count) for rank in range(size)]
    expected = tensors[root].copy()
    plans = [collectives.broadcast(rank, size, count, root) for rank in range(size)]
    simulate(plans, tensors, tensors, np.add, seed=seed)
    for tensor in tensors:
        np.testing.assert_array_equal(tensor, expected)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.data(), SEEDS)
def test_all_to_all_moves_every_uneven_part(size, data, seed) -> None:
    matrix = [[data.draw(st.integers(0, 30)) for _ in range(size)] for _ in range(size)]
    inputs = [np.concatenate([np.full(n, 10.0 * r + p) for p, n in enumerate(row)]) for r, row in enumerate(matrix)]
    received = [[matrix[source][rank] for source in range(size)] for rank in range(size)]
    outputs = [np.zeros(sum(row)) for row in received]
    plans = [collectives.all_to_all(rank, matrix[rank], received[rank]) for rank in range(size)]
    simulate(plans, inputs, outputs, np.add, seed=seed)
    for rank in range(size):
        expected = np.concatenate([np.full(n, 10.0 * source + rank) for source, n in enumerate(received[rank])])
        np.testing.assert_array_equal(outputs[rank], expected)


@given(st.integers(1, 6), SEEDS)
@settings(deadline=None)
def test_a_barrier_is_an_empty_message_from_everybody_to_everybody(size, seed) -> None:
    plans = [collectives.barrier(rank, size) for rank in range(size)]
    simulate(plans, [np.zeros(0)] * size, [np.zeros(0)] * size, np.add, seed=seed)
    assert all(plan.peers == frozenset(range(size)) - {rank} for rank, plan in enumerate(plans))


def test_the_simulator_finds_schedules_that_do_not_fit_together() -> None:
    buffers = [np.zeros(4)], [np.zeros(4)]
    with pytest.raises(ScheduleError, match="nobody received"):
        simulate([collectives.send(1, 4), Schedule(())], [*buffers[0], *buffers[0]], [*buffers[1], *buffers[1]], np.add)
    with pytest.raises(ScheduleError, match="nothing can go on"):
        simulate([Schedule(()), collectives.receive(0, 4)], [*buffers[0] * 2], [*buffers[1] * 2], np.add)
    twice = Step((Buffer(Space.INPUT),), (Buffer(Space.OUTPUT),), 4)
    with pytest.raises(ScheduleError, match="2 times"):
        simulate([Schedule((twice, twice))], *buffers, np.add)
    with pytest.raises(ScheduleError, match="outside"):
        simulate([Schedule((Step((Buffer(Space.INPUT, 1),), (Buffer(Space.OUTPUT),), 4),))], *buffers, np.add)


def test_offsets_beyond_32_bits_survive_the_flat_form() -> None:
    count = 2**31 + 12345
    words = flatten(collectives.all_reduce(1, 2, count), 10, 0)
    assert any(word > 2**30 for word in words)
    assert sum(step.count for step in collectives.all_gather(0, [count, count]).steps) == 3 * count


def test_steps_on_one_lane_are_put_in_order_for_the_c_core() -> None:
    sends = tuple(Step((Buffer(Space.INPUT, i),), (Wire(1),), 1) for i in range(3))
    words = flatten(Schedule(sends), 10, 0)
    assert words[3] == 2
    assert words[-4:] == [0, 1, 1, 2]


@pytest.mark.skipif(library() is None, reason="the C core was not built: no C compiler")
def test_the_c_core_takes_plans_and_refuses_words_that_are_none() -> None:
    import ctypes

    core = library()
    assert core is not None

    def load(words: list[int]) -> int | None:
        plan = core.het_plan_load((ctypes.c_int64 * len(words))(*words), len(words))
        core.het_plan_free(plan)
        return plan

    words = flatten(collectives.all_reduce(0, 3, 1000), 10, 0)
    assert load(words)
    assert not load([])
    assert not load(words[:-1])
    assert not load([99, *words[1:]])
    for place in range(1, len(words)):
        load([*words[:place], -1, *words[place + 1 :]])
        load([*words[:place], 2**40, *words[place + 1 :]])
