"""The flight recorder, read by PyTorch's own analyser."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hetccl.ranks import Ranks

pytest.importorskip("torch.distributed.flight_recorder", reason="this torch has no analyser of its own")

SIZE = 3
Dump = dict[str, Any]


def analysed(folder: Path) -> str:
    """What torchfrtrace says of the dumps in a folder."""
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def read(folder: Path, rank: int) -> Dump:
    dump: Dump = pickle.loads((folder / f"rank_{rank}").read_bytes())
    return dump


def last_of(dump: Dump) -> list[tuple[str, int, str]]:
    return [(each["profiling_name"], each["collective_seq_id"], each["state"]) for each in dump["entries"][-2:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The dumps: of everything, of a call that waits for the last rank, of calls that differ."""
    folder = tmp_path_factory.mktemp("traces")
    with Ranks("tests.integration.hetccl.recorded:recorded", SIZE, folder=str(folder)) as ranks:
        for rank in range(SIZE):
            ranks.ready(rank)
        deadline = time.monotonic() + 30
        while True:  # until both are in the call; they wait in it, in C
            os.kill(ranks.processes[0].pid, signal.SIGUSR2)
            os.kill(ranks.processes[2].pid, signal.SIGUSR2)
            (folder / "ask_1.pipe").write_text("please\n")
            time.sleep(0.05)
            files = [folder / "late" / f"rank_{rank}" for rank in range(SIZE)]
            if all(file.exists() for file in files) and all(
                last_of(read(folder / "late", rank))[0][2] == "started" for rank in (0, 1)
            ):
                break
            assert time.monotonic() < deadline, "no dump shows the call"
        (folder / "go").touch()
        said = [ranks.result(rank) for rank in range(SIZE)]
        assert all("call different collectives" in text for text in said), said
        yield folder


def test_the_analyser_matches_every_collective(folder: Path) -> None:
    said = analysed(folder / "all")
    for complaint in ("Not all ranks", "has errors", "mismatch", "cannot decide", "does not have"):
        assert complaint not in said, said
    entries = read(folder / "all", 0)["entries"]
    assert {each["state"] for each in entries} == {"completed"}
    assert [each["collective_seq_id"] for each in entries if not each["is_p2p"]] == list(range(1, 15))
    assert all(
        each["time_created_ns"] <= (each["time_discovered_completed_ns"] or each["time_created_ns"]) for each in entries
    )


def test_the_analyser_names_the_rank_that_a_call_waits_for(folder: Path) -> None:
    assert last_of(read(folder / "late", 0)) == [
        ("nccl:all_reduce", 15, "started"),
        ("nccl:all_reduce", 16, "scheduled"),
    ]
    said = analysed(folder / "late")
    assert "Not all ranks joining collective, sequence number: 15" in said
    assert "missing ranks: {2}" in said


def test_a_dump_is_made_on_a_signal_and_by_a_pipe_while_a_call_waits(folder: Path) -> None:
    reasons = [read(folder / "late", rank)["hetccl"]["reason"] for rank in (0, 1)]
    assert reasons == ["SIGUSR2 came", f"{folder / 'ask_1.pipe'} was written"]


def test_every_rank_dumps_when_ranks_call_different_collectives_and_the_analyser_says_how(folder: Path) -> None:
    said = analysed(folder / "different")
    # A rank that comes late finds the group broken before it has called anything.
    missed = "Not all ranks joining collective, sequence number: 17" in said
    assert missed or ("Collective sequence number: 17 has errors" in said and "[[9]]" in said), said
    assert missed or "SIZE_OR_SYNTAX_MISMATCH" in said, said
    assert "[[8]]" in said
    for rank in range(SIZE):
        assert "call different collectives" in read(folder / "different", rank)["hetccl"]["reason"]
