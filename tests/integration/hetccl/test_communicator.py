"""Collectives between real processes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hetccl.errors import CollectiveError, ResourceError
from hetccl.runners.core import library
from tests.integration.hetccl.ranks import Ranks, results

HEARTBEAT_LIMIT = 10
"""Seconds within which a lost rank is noticed: promised."""

core = pytest.mark.skipif(library() is None, reason="the C core was not built: no C compiler")
WIRES = [
    pytest.param({"shm": True}, id="shm", marks=core),
    pytest.param({"shm": False}, id="tcp", marks=core),
    pytest.param({"kind": "python"}, id="python"),
]


def no_errors(outcome: list[Any]) -> list[Any]:
    assert not [each for each in outcome if isinstance(each, Exception)]
    return outcome


@pytest.mark.parametrize("how", WIRES)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_collective_gives_the_right_result_with_the_same_bits_on_all_ranks(
    size: int, how: dict[str, Any]
) -> None:
    cases = {2: 14, 3: 10, 5: 5}[size]
    bits = no_errors(results("everything", size, 150, cases=cases, seed=size, **how))
    assert all(each == bits[0] for each in bits)


@core
def test_ranks_with_and_without_the_c_core_work_together_and_agree_to_the_bit() -> None:
    each = [{"kind": "core"}, {"kind": "python"}, {"kind": "core"}]
    bits = no_errors(results("everything", 3, 120, cases=8, seed=77, each=each))
    assert bits[0] == bits[1] == bits[2]


@pytest.mark.parametrize("how", WIRES)
def test_large_messages_both_ways_at_once_do_not_block_each_other(how: dict[str, Any]) -> None:
    no_errors(results("both_ways", 2, **how))


@pytest.mark.parametrize("how", WIRES)
@pytest.mark.parametrize("how_lost", ["killed", "stopped"])
def test_a_lost_rank_is_named_by_all_others_within_the_heartbeats_limit(how: dict[str, Any], how_lost: str) -> None:
    with Ranks("lost", 3, how_lost=how_lost, **how) as ranks:
        ranks.ready(2)
        os.kill(ranks.processes[2].pid, signal.SIGKILL if how_lost == "killed" else signal.SIGSTOP)
        begin = time.monotonic()
        errors = [ranks.result(rank) for rank in (0, 1)]
        assert time.monotonic() - begin < HEARTBEAT_LIMIT
    for error in errors:
        assert isinstance(error, CollectiveError)
        assert "all_reduce #2" in str(error)
        assert "rank 2 (pool pool0" in str(error)
        assert "is gone" in str(error)


@pytest.mark.parametrize("how", WIRES)
def test_a_rank_that_is_busy_for_longer_than_the_limit_is_not_lost(how: dict[str, Any]) -> None:
    no_errors(results("busy", 2, **how))


@pytest.mark.parametrize("how", WIRES)
def test_an_abort_that_comes_before_its_group_was_joined_is_not_lost(how: dict[str, Any]) -> None:
    assert no_errors(results("early", 2, **how)) == ["rank 0 gave up"] * 2


@pytest.mark.parametrize("how", WIRES)
def test_a_timeout_names_the_call_and_the_ranks_that_were_waited_for(how: dict[str, Any]) -> None:
    with Ranks("late", 3, **how) as ranks:
        errors = [ranks.result(rank) for rank in (0, 1)]
    for error in errors:
        assert isinstance(error, CollectiveError)
        assert "all_reduce #2 (10 x float32, sum) of group world timed out after 1 s" in str(error)
        assert "waiting for rank 2 (pool pool0" in str(error)


def test_ranks_that_never_join_are_named() -> None:
    with Ranks("absent", 4, start=2) as ranks:
        errors = [ranks.result(rank) for rank in (0, 1)]
    for error in errors:
        assert isinstance(error, ResourceError)
        assert "group world of 4 ranks: these did not join in time: ranks 2, 3" in str(error)


@pytest.mark.parametrize("how", WIRES)
def test_strangers_at_the_port_change_nothing(how: dict[str, Any]) -> None:
    no_errors(results("besieged", 2, **how))


@core
@pytest.mark.parametrize("how", [{"shm": True}, {"shm": False}], ids=["shm", "tcp"])
def test_a_thousand_groups_leave_nothing_behind(how: dict[str, Any]) -> None:
    """The store, which is not ours, keeps what was said in it: about 2 KiB a group."""
    for before, after in no_errors(results("many_groups", 2, 120, groups=1000, **how)):
        assert all(now <= then for now, then in zip(after[:3], before[:3], strict=True)), (before, after)
        assert after[3] - before[3] < 16 << 20, (before, after)


@pytest.mark.parametrize("how", WIRES)
@pytest.mark.parametrize("one_group", [True, False])
def test_groups_may_be_used_from_several_threads(one_group: bool, how: dict[str, Any]) -> None:
    no_errors(results("threads", 2, one_group=one_group, **how))


@pytest.mark.parametrize("how", WIRES)
def test_a_call_in_a_forked_child_is_refused_and_harms_nobody(how: dict[str, Any]) -> None:
    for said in no_errors(results("in_a_forked_child", 2, **how)):
        assert "forked child" in said


@pytest.mark.parametrize("how", WIRES)
def test_closing_a_group_ends_what_waits_in_it(how: dict[str, Any]) -> None:
    with Ranks("closes", 2, **how) as ranks:
        assert "closed" in ranks.result(0)


@core
def test_nothing_is_left_in_dev_shm_after_ranks_were_killed() -> None:
    before = set(Path("/dev/shm").glob("hetccl-*"))
    with Ranks("late", 3) as ranks:
        ranks.ready(2)
        for process in ranks.processes:
            process.kill()
    assert set(Path("/dev/shm").glob("hetccl-*")) <= before


def test_eight_ranks_on_few_cores_finish() -> None:
    no_errors(results("everything", 8, 150, cases=2, seed=8))
