"""Shares of a batch by speed, and when they change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetccl.balance.decide import LONGEST_INTERVAL, WARM_UP_LOOKS, Decision, Measured, Policy
from hetccl.balance.schedule import Schedule
from hetccl.balance.shares import divide, step_time
from hetccl.balance.stopwatch import UNLIMITED

SPEEDS = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


@given(SPEEDS, st.integers(0, 500))
def test_every_sample_goes_to_one_rank_and_every_rank_has_one(speeds: list[float], more: int) -> None:
    total = len(speeds) + more
    sizes = divide(total, speeds)
    assert sum(sizes) == total
    assert min(sizes) >= 1


@given(SPEEDS, st.integers(0, 300))
def test_no_move_of_one_sample_makes_a_step_shorter(speeds: list[float], more: int) -> None:
    sizes = divide(len(speeds) + more, speeds)
    best = step_time(sizes, speeds)
    for giver in range(len(speeds)):
        for taker in range(len(speeds)):
            moved = list(sizes)
            moved[giver] -= 1
            moved[taker] += 1
            if min(moved) >= 1:
                assert step_time(moved, speeds) >= best * (1 - 1e-9)


@given(SPEEDS, st.integers(0, 300), st.data())
def test_no_rank_has_more_than_its_limit(speeds: list[float], more: int, data: st.DataObject) -> None:
    total = len(speeds) + more
    even = -(-total // len(speeds))
    limits = [data.draw(st.integers(even, total)) for _ in speeds]
    quantum = data.draw(st.integers(1, 8))
    sizes = divide(total, speeds, limits, quantum)
    assert sum(sizes) == total
    assert all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_sizes_divide_their_own_batch_as_they_stand(sizes: list[int]) -> None:
    assert divide(sum(sizes), [float(size) for size in sizes]) == sizes


def test_sizes_are_multiples_of_the_quantum_but_one() -> None:
    assert [size % 8 for size in divide(256, [3.0, 2.0, 1.0], quantum=8)] == [0, 0, 0]
    assert sum(size % 8 != 0 for size in divide(253, [3.0, 2.0, 1.0], quantum=8)) == 1


@pytest.mark.parametrize(
    ("total", "speeds", "limits", "message"),
    [(2, [1.0] * 3, None, "do not go round"), (8, [1.0, 0.0], None, "above 0"), (8, [1.0, 1.0], [3, 4], "no room")],
)
def test_what_cannot_be_divided_says_why(total: int, speeds: list[float], limits: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        divide(total, speeds, limits)


def look(
    policy: Policy, speeds: list[float], weights: tuple[int, ...], total: int = 96, limit: int = UNLIMITED
) -> Decision:
    return policy.decide([Measured(speed, limit) for speed in speeds], weights, total, 1)


def test_shares_follow_the_speeds() -> None:
    assert look(Policy(3), [300.0, 300.0, 100.0], (1, 1, 1), 84).weights == (36, 36, 12)


def test_noise_changes_nothing_and_is_looked_at_less_and_less() -> None:
    policy, weights, intervals = Policy(2), (48, 48), []
    for speeds in ([100.0, 101.0], [101.0, 100.0]) * 4:
        decision = look(policy, speeds, weights)
        assert not decision.changed
        intervals.append(decision.interval)
    assert intervals == sorted(intervals)
    assert intervals[-1] == LONGEST_INTERVAL


def test_a_rank_that_slows_is_followed() -> None:
    policy = Policy(2)
    assert look(policy, [100.0, 100.0], (48, 48)).weights == (48, 48)
    assert look(policy, [100.0, 30.0], (48, 48)).weights == (74, 22)


def test_a_share_is_never_raised_beyond_what_fits() -> None:
    assert look(Policy(2), [300.0, 100.0], (48, 48), limit=60).weights == (60, 36)


def test_a_limit_below_the_script_s_own_batch_is_none() -> None:
    assert look(Policy(2), [100.0, 100.0], (48, 48), limit=10).weights == (48, 48)


def test_nothing_is_decided_before_all_ranks_have_measured() -> None:
    decision = look(Policy(2), [100.0, 0.0], (48, 48))
    assert (decision.weights, decision.changed) == ((48, 48), False)


def test_static_without_weights_measures_and_then_stays() -> None:
    policy, weights = Policy(2, freeze=True), (48, 48)
    for _ in range(WARM_UP_LOOKS):
        decision = look(policy, [300.0, 100.0], weights)
        weights = decision.weights
    assert (weights, decision.interval) == ((72, 24), 0)


def test_weights_hold_from_their_batch_on_however_late_it_is_drawn() -> None:
    schedule = Schedule([1, 1])
    schedule.add(4, [3, 1])
    schedule.add(2, [7, 1])  # decided later, by a loop that had drawn less far
    assert [schedule.sizes(number, 8) for number in (0, 3, 4, 5, 9)] == [[4, 4], [4, 4], [6, 2], [7, 1], [7, 1]]
