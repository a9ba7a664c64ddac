"""`hetccl bench` measures real ranks against a peer in the same run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hetccl.bench.formulas import BUS
from tests.integration.hetccl.torch_ranks import plain


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hetccl", "bench", *arguments]
    return subprocess.run(command, env=plain(**environment), capture_output=True, text=True, timeout=120, check=False)


def test_rows_hold_what_was_measured_and_say_what_is_simulated(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = bench("all_gather", "--islands=2+1", "--sizes=48K", "--peer=gloo", "--busy", "--json", str(file))
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert set(document["meta"]) == {"commit", "host", "cpus", "gpus", "versions", "simulated"}
    assert document["meta"]["simulated"] == ["islands"]
    assert "(simulated)" in done.stdout
    (row,) = document["rows"]
    told = {name: row[name] for name in ("op", "bytes", "dtype", "ranks", "islands", "wire")}
    assert told == {
        "op": "all_gather",
        "bytes": 49152,
        "dtype": "float32",
        "ranks": 3,
        "islands": "2+1",
        "wire": "shm",
    }
    assert min(row["us"], row["torch_us"], row["busy_us"]) > 0
    assert row["algbw"] == pytest.approx(row["bytes"] / row["us"] / 1e3)
    assert row["busbw"] == pytest.approx(row["algbw"] * BUS["all_gather"](3))
    assert row["bound_share"] > 0
    assert row["peers"]["gloo"]["ratio"] == pytest.approx(row["peers"]["gloo"]["us"] / row["us"])
    assert [line.split()[0] for line in done.stdout.splitlines()][-1] == "49152"


def test_sockets_are_measured_where_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    done = bench("broadcast", "--wire=tcp", "--sizes=4", "--dtype=int64", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["wire"], row["dtype"], row["bytes"], row["peers"]) == ("tcp", "int64", 8, {})


def test_ranks_that_fail_are_an_error_with_their_own_words() -> None:
    done = bench("all_reduce", "--sizes=4", HETCCL_TRANSPORT="fast")
    assert done.returncode == 1
    assert "HETCCL_TRANSPORT is 'fast'" in done.stderr
    assert "hetccl bench: the ranks ended with [1, 1]; what they said is above" in done.stderr
