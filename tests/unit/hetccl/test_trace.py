"""Dumps of the flight recorder as files; what is in them is shown with PyTorch's analyser."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hetccl.calls import Call
from hetccl.dtypes import Op
from hetccl.observe import trace
from hetccl.observe.recorder import Recorder, Track
from hetccl.settings import TraceSettings

TRACK = Track("1a", "world", (0, 1))
CALL = Call("all_reduce", torch.float32, 10, Op.SUM)


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A recorder and settings of this test's own."""
    own = Recorder()
    monkeypatch.setattr(trace, "recorder", own)
    yield own
    trace.configure(TraceSettings(), 0)


def test_the_last_calls_are_kept(recorder: Recorder) -> None:
    recorder.resize(3)
    for sequence in range(1, 6):
        recorder.add(TRACK, CALL, sequence, 1.0)
    assert [(entry.number, entry.sequence) for entry in recorder.entries()] == [(2, 3), (3, 4), (4, 5)]


def test_a_file_that_ends_with_json_is_json_and_says_the_same(tmp_path: Path, recorder: Recorder) -> None:
    recorder.add(TRACK, CALL, 1, 1.0)
    trace.configure(TraceSettings(file=str(tmp_path / "deep" / "rank_")), 4)
    assert trace.dump("asked") == tmp_path / "deep" / "rank_4"
    trace.configure(TraceSettings(file=str(tmp_path / "rank_.json")), 4)
    assert trace.dump("asked") == tmp_path / "rank_4.json"
    pickled = pickle.loads((tmp_path / "deep" / "rank_4").read_bytes())
    assert json.loads(json.dumps(pickled)) == json.loads((tmp_path / "rank_4.json").read_text())


def test_nothing_is_written_where_there_is_to_be_no_file_or_nothing_is_kept(tmp_path: Path) -> None:
    trace.configure(TraceSettings(), 0)
    assert trace.dump("asked") is None
    trace.configure(TraceSettings(size=0, file=str(tmp_path / "rank_")), 0)
    assert trace.dump("asked") is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_logged_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    trace.configure(TraceSettings(file=str(tmp_path / "file" / "rank_")), 0)
    assert trace.dump("asked") is None
    assert "HETCCL_TRACE_FILE" in caplog.text


def test_a_link_that_somebody_left_in_the_dumps_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "rank_0").symlink_to(tmp_path / "precious")
    trace.configure(TraceSettings(file=str(tmp_path / "rank_")), 0)
    assert trace.dump("asked") is not None
    assert (tmp_path / "precious").read_text() == "kept"


def test_of_two_failures_the_later_is_the_dumps_reason_whichever_thread_is_first(tmp_path: Path) -> None:
    trace.configure(TraceSettings(file=str(tmp_path / "rank_")), 0)
    older, newer = next(trace._State.asked), next(trace._State.asked)
    trace._write("newer", newer)
    trace._write("older", older)
    assert pickle.loads((tmp_path / "rank_0").read_bytes())["hetccl"]["reason"] == "newer"
