"""What `hetccl doctor` says of an environment, and how it exits."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hetccl import doctor
from hetccl.cli import main
from hetccl.doctor import Finding, Level, examine, report
from hetccl.errors import ResourceError
from hetccl.runners import core
from hetccl.wires import segment

built = pytest.mark.skipif(core.library() is None, reason="the C core was not built: no C compiler")
JOB = {"HETCCL_VENDOR": "cpu", "NCCL_SOCKET_IFNAME": ""}


def named(found: list[Finding], name: str) -> Finding:
    (finding,) = (each for each in found if each.name == name)
    return finding


def test_outside_of_a_job_nothing_is_broken() -> None:
    assert max(finding.level for finding in examine({})) < Level.BROKEN


def test_a_variable_with_a_value_that_is_not_allowed_is_named() -> None:
    for outside in (JOB, {}):
        finding = named(examine({**outside, "HETCCL_TRANSPORT": "tcp"}), "settings")
        assert finding.level is Level.BROKEN
        assert "HETCCL_TRANSPORT is 'tcp'; allowed: Auto, RDMA, TCP" in finding.text


def test_a_job_without_a_token_works_but_is_open(tmp_path: Path) -> None:
    assert named(examine(JOB), "settings").level is Level.FALLBACK
    (tmp_path / "token").write_text("secret")
    found = examine({**JOB, "HETCCL_TOKEN_FILE": str(tmp_path / "token")})
    assert named(found, "settings").level is Level.OK
    assert "secret" not in report(found, as_json=False)


def test_a_vendors_rank_without_a_gpu_does_not_work_unless_it_is_simulated() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert named(examine({"HETCCL_VENDOR": "amd"}), "devices").level is Level.BROKEN
    simulated = examine({"HETCCL_VENDOR": "amd", "HETCCL_SIMULATE": "1"})
    assert named(simulated, "devices").level is Level.OK
    assert "simulated" in named(simulated, "devices").text
    assert "simulated" in named(simulated, "settings").text


def test_a_job_whose_process_was_not_taken_over_does_not_work() -> None:
    finding = named(examine(JOB), "takeover")
    assert finding.level is Level.BROKEN
    assert "PYTHONPATH" in finding.advice


@built
def test_shared_memory_that_is_too_small_says_size_and_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_need: int) -> None:
        raise ResourceError("/dev/shm is too small: 2052 KiB are needed for one more pair of ranks, 1024 of 65536 KiB")

    monkeypatch.setattr(segment.Segment, "create", full)
    finding = named(examine(JOB), "shm")
    assert finding.level is Level.FALLBACK
    assert "2052 KiB are needed" in finding.text
    assert "tcp" in finding.text
    assert "/dev/shm" in finding.advice


@built
def test_looking_leaves_nothing_in_shared_memory() -> None:
    before = set(Path("/dev/shm").glob("hetccl-*"))
    examine(JOB)
    assert set(Path("/dev/shm").glob("hetccl-*")) <= before


def test_without_the_c_core_it_works_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "library", lambda: None)
    finding = named(examine(JOB), "core")
    assert finding.level is Level.FALLBACK
    assert "plain Python" in finding.text


def test_a_rule_that_selects_no_interface_does_not_work() -> None:
    finding = named(examine({**JOB, "NCCL_SOCKET_IFNAME": "=nosuch0"}), "interfaces")
    assert finding.level is Level.BROKEN
    assert "'=nosuch0', which selects none" in finding.text
    loopback = named(examine({**JOB, "NCCL_SOCKET_IFNAME": "=lo"}), "interfaces")
    assert loopback.level is Level.FALLBACK


def test_rdma_that_is_demanded_does_not_work() -> None:
    assert named(examine({**JOB, "HETCCL_TRANSPORT": "RDMA"}), "rdma").level is Level.BROKEN
    assert named(examine(JOB), "rdma").level < Level.BROKEN


def test_a_peer_is_there_whether_it_listens_or_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert named(examine(JOB, f"127.0.0.1:{port}"), "peer").level is Level.OK
    assert named(examine(JOB, f"127.0.0.1:{port}"), "peer").level is Level.OK


def test_a_peer_that_cannot_be_reached_or_has_no_name_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = named(examine(JOB, "no-such-host.invalid"), "peer")
    assert finding.level is Level.BROKEN
    assert "no-such-host.invalid has no address" in finding.text
    monkeypatch.setattr(doctor, "_reach", lambda _family, _address: ("", "no answer within 3 s"))
    finding = named(examine(JOB, "[::1]:80"), "peer")
    assert finding.level is Level.BROKEN
    assert "(::1) port 80 cannot be reached: no answer within 3 s" in finding.text


def test_a_peer_behind_an_interface_that_ranks_are_not_told_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_reach", lambda _family, _address: ("192.0.2.77", ""))
    finding = named(examine(JOB, "127.0.0.1"), "peer")
    assert finding.level is Level.FALLBACK
    assert "whose address ranks are not told" in finding.text


def test_what_cannot_be_looked_at_does_not_hide_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_chosen: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(doctor, "_devices", fails)
    found = examine(JOB)
    assert named(found, "devices") == Finding("devices", Level.BROKEN, "looking at it failed: PermissionError: no")
    assert named(found, "rdma")


@pytest.mark.parametrize("level", list(Level))
def test_the_worst_finding_is_the_exit_code(
    level: Level, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Finding("one", Level.OK, "is fine"), Finding("two", level, "is so", "do that")]
    monkeypatch.setattr("hetccl.cli.examine", lambda peer: found)
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    assert ended.value.code == level
    assert "do that" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["exit"] == ended.value.code == level
    assert document["findings"][1] == {"name": "two", "level": level.name.lower(), "text": "is so", "advice": "do that"}


def test_it_works_in_a_python_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch')")
    root = Path(doctor.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    done = subprocess.run(
        [sys.executable, "-m", "hetccl", "doctor"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == Level.BROKEN, done.stderr
    assert "broken    torch       not installed" in done.stdout
    assert "ok        interfaces" in done.stdout or "fallback  interfaces" in done.stdout
