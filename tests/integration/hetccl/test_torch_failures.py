"""Failures raise on every rank, say whose they are, and leave processes that can go on."""

import json
import pickle
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hetccl.torch_ranks import Gang, scenario

Said = list[dict[str, list[str]]]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, str]]:
    """What ranks 0 and 1 caught at each step, and what rank 0 logged. The report's port is taken by somebody else."""
    folder: Path = tmp_path_factory.mktemp("failures")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = str(taken.getsockname()[1])
        with Gang(scenario("torch_failures", folder), folder, HETCCL_REPORT_PORT=port) as gang:
            log, _ = (rank.succeeds(90) for rank in gang.ranks[:2])
        yield [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)], log


def test_a_rank_with_another_size_raises_the_same_on_all(failures: tuple[Said, str]) -> None:
    (first, _), (second, _) = ((rank["another_size"], rank) for rank in failures[0])
    assert len({*first, *second}) == 1, "the operation, its future and the next call, on every rank"
    assert "rank 1: all_reduce #2 (5000 x float32, sum)" in first[0]
    assert re.search(r"rank [02]: all_reduce #2 \(4000 x float32, sum\)", first[0]), (
        "whoever of the others noticed it first"
    )


def test_a_rank_that_does_not_come_is_named_when_the_time_is_over(failures: tuple[Said, str]) -> None:
    assert failures[0][0]["late"] == failures[0][1]["late"]
    (text,) = failures[0][0]["late"]
    assert "all_reduce #2 (3 x float32, sum)" in text
    assert "timed out after 1 s, waiting for rank 2 (pool amd" in text


def test_a_message_that_does_not_come_names_its_sender(failures: tuple[Said, str]) -> None:
    (text,) = failures[0][0]["late_for_a_message"]
    assert "timed out after 1 s, waiting for rank 2 (pool amd" in text


def test_a_wait_that_gives_up_leaves_the_operation_alone(failures: tuple[Said, str]) -> None:
    for rank in failures[0]:
        assert "all_reduce was not done within the 0:00:00.2" in rank["impatient"][0]


def test_an_abort_reaches_all_ranks(failures: tuple[Said, str]) -> None:
    for rank in failures[0]:
        assert "aborted" in rank["aborted"][0]


def test_a_group_can_be_destroyed_while_an_operation_waits(failures: tuple[Said, str]) -> None:
    assert "aborted" in failures[0][0]["destroyed_in_flight"][0]


def test_a_killed_rank_is_named_to_the_others(failures: tuple[Said, str]) -> None:
    for rank in failures[0]:
        assert "rank 2 (pool amd" in rank["lost"][0]
        assert "is gone" in rank["lost"][0]


def test_training_goes_on_where_the_report_has_no_port(failures: tuple[Said, str]) -> None:
    assert "no report is served on port" in failures[1]
    assert "training goes on" in failures[1]


def test_the_last_calls_are_written_where_they_were_asked_for(
    failures: tuple[Said, str],
) -> None:
    assert "wrote the last " in failures[1]
    written = re.search(r"calls to (\S+/rank_0); all ranks' dumps together are read by: torchfrtrace", failures[1])
    assert written, failures[1]
    dump = pickle.loads(Path(written[1]).read_bytes())
    assert "is gone" in dump["hetccl"]["reason"], "the last failure of all"
    assert {group["desc"] for group in dump["pg_config"].values()} == {"world", "world, 2 to 0"}
    assert dump["entries"][-1]["profiling_name"] == "nccl:all_reduce"
    assert dump["entries"][-1]["state"] == "started"
