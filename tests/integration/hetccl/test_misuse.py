"""Ranks that do not agree: all of them raise the same, and say which rank does what."""

import os
import re
import signal
from typing import Any

import pytest

from hetccl.runners.core import library
from tests.integration.hetccl.misuse import CALLS
from tests.integration.hetccl.ranks import Ranks, results

core = pytest.mark.skipif(library() is None, reason="the C core was not built: no C compiler")
WIRES = [
    pytest.param({"shm": True}, id="shm", marks=core),
    pytest.param({"shm": False}, id="tcp", marks=core),
    pytest.param({"kind": "python"}, id="python"),
]
WORLDS = [
    pytest.param(2, 1, {}, id="two islands"),
    pytest.param(2, 1, {"vendor": "amd"}, id="one island"),
    pytest.param(3, 2, {}, id="three ranks, inside an island"),
    pytest.param(3, 0, {}, id="three ranks, the first is odd"),
]


def no_errors(outcome: list[Any]) -> list[Any]:
    assert not [each for each in outcome if isinstance(each, Exception)], outcome
    return outcome


@pytest.mark.parametrize("how", WIRES)
@pytest.mark.parametrize(("size", "odd", "world"), WORLDS)
def test_ranks_that_call_different_collectives_raise_the_same(
    size: int, odd: int, world: dict[str, Any], how: dict[str, Any]
) -> None:
    outcome = no_errors(results("tests.integration.hetccl.misuse:different_calls", size, odd=odd, **world, **how))
    for name in CALLS:
        said = {rank[name][0] for rank in outcome}
        assert len(said) == 1, (name, said)
        kind, text = said.pop()
        assert kind == "CollectiveError", (name, text)
        assert "call different collectives: " in text, (name, text)
        assert f"rank {odd}: " in text, (name, text)


@pytest.mark.parametrize("how", [WIRES[0], WIRES[2]])
@pytest.mark.parametrize(("size", "odd", "world"), WORLDS)
def test_a_full_check_finds_them_before_any_data_moves(
    size: int, odd: int, world: dict[str, Any], how: dict[str, Any]
) -> None:
    scenario = "tests.integration.hetccl.misuse:different_calls"
    outcome = no_errors(results(scenario, size, odd=odd, checks=True, **world, **how))
    for name in CALLS:
        said = {rank[name][0] for rank in outcome}
        assert len(said) == 1, (name, said)
        kind, text = said.pop()
        assert kind == "CollectiveError", (name, text)
        if name == "sizes of a pair":
            assert f"rank {(odd + 1) % size} sends 1 elements to rank {odd}, which expects 2 from it" in text
        else:
            assert f"rank {odd}: " in text, (name, text)
        assert all(rank[name][1] for rank in outcome), f"{name}: a tensor has changed"


@core
def test_a_full_check_lets_pass_what_fits_and_one_rank_that_asks_is_enough() -> None:
    no_errors(results("tests.integration.hetccl.misuse:agreeing", 3))


@pytest.mark.parametrize("how", WIRES)
def test_ranks_that_call_in_different_groups_are_told_so(how: dict[str, Any]) -> None:
    first, second, third = no_errors(results("tests.integration.hetccl.misuse:another_group", 3, **how))
    call = r"all_reduce #1 \(6 x float32, sum\) of group"
    for kind, text in (first, second):
        assert kind == "CollectiveError"
        assert re.search(rf"{call} a timed out after 1 s, waiting for .*rank 2 [^;]*, which is in {call} b", text), text
    assert first == second
    text = third[1]
    assert re.search(rf"{call} b timed out after 1 s, waiting for .*rank 0 [^;]*, which is in {call} a", text), text


def test_a_timeout_says_what_the_rank_that_is_waited_for_does(late: tuple[str, str, str]) -> None:
    assert "waiting for rank 2 (pool pool0" in late[0]
    assert "which has not called it: its last call is barrier #1" in late[0]
    assert "waiting for rank 2 (pool pool0" in late[1]
    assert "which has not called it: it has made no call of this group" in late[1]
    assert "waiting for rank 2 (pool pool0" in late[2]
    assert "which does not answer" in late[2]


@pytest.fixture(scope="module")
def late() -> tuple[str, str, str]:
    """What rank 0 was told of rank 2: that called before, that never did, that is stopped."""
    with Ranks("tests.integration.hetccl.misuse:late_in_three_ways", 3) as ranks:
        ranks.ready(2)
        os.kill(ranks.processes[2].pid, signal.SIGSTOP)
        texts = ranks.result(0)
    assert not isinstance(texts, Exception), texts
    return texts


@core
def test_a_full_check_names_the_call_and_the_rank_that_does_not_come() -> None:
    outcome = no_errors(results("tests.integration.hetccl.misuse:late_and_checked", 3))
    (_, text), second, _ = outcome
    assert second == ("CollectiveError", text)
    assert "broadcast #1 (3 x float32, root 0) of group world timed out after 1 s" in text
    assert "waiting for rank 2 (pool" in text


@pytest.fixture(scope="module")
def meetings() -> list[dict[str, tuple[str, str]]]:
    return no_errors(results("tests.integration.hetccl.misuse:meetings", 3))


def test_ranks_that_wait_for_one_that_does_not_come_name_it(meetings: list[dict[str, tuple[str, str]]]) -> None:
    first, second, _ = (rank.get("absent") for rank in meetings)
    assert first == second
    assert first is not None
    assert first[0] == "ResourceError"
    assert "these did not join in time: rank 12." in first[1], "by its number in the world"


def test_a_rank_that_comes_after_a_group_was_refused_is_told_why(meetings: list[dict[str, tuple[str, str]]]) -> None:
    assert "these did not join in time: " in meetings[2]["came late"][1]


def test_a_rank_with_another_token_is_named_to_all(meetings: list[dict[str, tuple[str, str]]]) -> None:
    for rank in meetings:
        assert rank["another token"][0] == "AuthenticationError"
        assert "HETCCL_TOKEN_FILE differs" in rank["another token"][1]
    assert meetings[0]["another token"] == meetings[1]["another token"]
    assert meetings[0]["another token"][1].startswith("rank 12 does not have this job's token")


def test_releases_with_different_protocols_refuse_each_other_on_both_sides(
    meetings: list[dict[str, tuple[str, str]]],
) -> None:
    said = {rank["another protocol"] for rank in meetings}
    assert len(said) == 1, said
    kind, text = said.pop()
    assert kind == "ResourceError"
    assert "rank 12 has release " in text
    assert "use one release in all pools" in text


def test_no_rank_gets_a_group_of_which_two_ranks_cannot_reach_each_other(
    meetings: list[dict[str, tuple[str, str]]],
) -> None:
    said = {rank["unreachable"] for rank in meetings}
    assert len(said) == 1, said
    assert "no route" in said.pop()[1]
