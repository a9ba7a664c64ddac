"""What HETCCL_CHECK=full says of calls, given what all ranks call."""

from collections.abc import Sequence
from threading import Barrier, Thread

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hetccl.calls import Call
from hetccl.check import compare
from hetccl.dtypes import Op

RANKS = (4, 7, 9)


def compared(calls: Sequence[Call]) -> list[str | None]:
    """What each of the ranks finds, when they exchange their numbers."""
    table: list[list[int]] = [[] for _ in calls]
    found: list[str | None] = ["not done"] * len(calls)
    meet = Barrier(len(calls), timeout=10)

    def rank(own: int) -> None:
        def exchange(numbers: Sequence[int]) -> list[list[int]]:
            table[own] = list(numbers)
            meet.wait()
            everybodys = list(table)
            meet.wait()
            assert len({len(each) for each in everybodys}) == 1, "an exchange has as many numbers on every rank"
            return everybodys

        found[own] = compare(calls[own], 3, RANKS[: len(calls)], exchange)

    threads = [Thread(target=rank, args=(own,)) for own in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


SUM = Call("all_reduce", torch.float32, 10, Op.SUM)


@pytest.mark.parametrize(
    "other",
    [
        Call("all_reduce", torch.float32, 11, Op.SUM),
        Call("all_reduce", torch.float64, 10, Op.SUM),
        Call("all_reduce", torch.float32, 10, Op.MAX),
        Call("reduce", torch.float32, 10, Op.SUM, 1),
        Call("barrier", torch.uint8, 0),
        Call("all_to_all", torch.float32, 0, sent=(1, 1, 1), received=(1, 1, 1)),
    ],
)
def test_every_rank_finds_the_same_difference_and_who_makes_it(other: Call) -> None:
    found = compared([SUM, SUM, other])
    assert set(found) == {f"ranks 4, 7: {SUM.describe(3)}; rank 9: {other.describe(3)}"}


def test_calls_that_are_alike_pass() -> None:
    assert compared([SUM] * 3) == [None] * 3


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=3, max_size=3))
def test_sizes_between_pairs_pass_where_both_sides_mean_the_same(matrix: list[list[int]]) -> None:
    def calls(expected: list[list[int]]) -> list[Call]:
        return [
            Call("all_to_all", torch.float32, 0, sent=tuple(matrix[r]), received=tuple(row[r] for row in expected))
            for r in range(3)
        ]

    assert compared(calls(matrix)) == [None] * 3
    other = [list(row) for row in matrix]
    other[1][2] += 1
    (text,) = set(compared(calls(other)))
    assert text is not None
    assert f"rank 7 sends {matrix[1][2]} elements to rank 9, which expects {other[1][2]} from it" in text
