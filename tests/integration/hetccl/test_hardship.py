"""Ranks on bad days: whatever happens, they finish with the right result or say what is wrong."""

import os
import time
from typing import Any

import pytest

from hetccl.errors import CollectiveError
from hetccl.runners.core import library
from tests.integration.hetccl.ranks import results

core = pytest.mark.skipif(library() is None, reason="the C core was not built: no C compiler")
KINDS = [pytest.param("core", marks=core), pytest.param("python")]
HARDSHIP = "tests.integration.hetccl.hardship:"


def no_errors(outcome: list[Any]) -> list[Any]:
    assert not [each for each in outcome if isinstance(each, Exception)], outcome
    return outcome


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"delay": 0}, id="shm", marks=core),
        pytest.param({"delay": 0.003, "kind": "core", "shm": False}, id="tcp, late by chance", marks=core),
        pytest.param({"delay": 0.003, "kind": "python", "shm": False}, id="python, late by chance"),
    ],
)
def test_groups_in_flight_do_not_wait_for_each_other_however_late_ranks_and_wires_are(how: dict[str, Any]) -> None:
    no_errors(results(HARDSHIP + "groups_in_any_order", 3, 120, **how))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_whose_network_is_lost_is_named_by_all_others_and_knows_itself(kind: str) -> None:
    begin = time.monotonic()
    errors = results(HARDSHIP + "cut_off", 3, kind=kind)
    assert time.monotonic() - begin < 30, "long before the call's own deadline"
    for error in errors:
        assert isinstance(error, CollectiveError), errors
        assert "is gone" in str(error)
    assert all("rank 2 (pool" in str(error) for error in errors[:2]), errors


@core
@pytest.mark.skipif(os.geteuid() != 0, reason="a /dev/shm of its own takes root")
def test_ranks_whose_shared_memory_is_too_small_use_sockets_and_say_what_is_needed() -> None:
    assert no_errors(results(HARDSHIP + "in_little_memory", 2)) == [("tcp", 0)] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd_of_strangers_at_the_port_keeps_nobody_out_and_is_not_let_in(kind: str) -> None:
    no_errors(results(HARDSHIP + "under_siege", 2, kind=kind))


def test_sixteen_ranks_on_few_cores_finish() -> None:
    no_errors(results("everything", 16, 170, cases=1, seed=16))
