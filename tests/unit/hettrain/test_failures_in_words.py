"""What a failed trainer left: status.firstFailure and its event."""

import json

from hettrain.status.failures import readable
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hettrain.worlds import AMD, started

KUBELET_KEEPS = 4096
CALLSTACK = (
    "Traceback (most recent call last):\n"
    + '  File "train.py", line 1, in step\n' * 300
    + 'ValueError: "boom" \u00e9\n'
)


def error_file(callstack: str) -> str:
    """As torch's `record` writes it."""
    said = {"message": "ValueError: boom", "extraInfo": {"py_callstack": callstack, "timestamp": "1796097210"}}
    return json.dumps({"message": said})


def test_the_traceback_of_an_error_file_is_shown() -> None:
    assert readable(error_file("Traceback:\nValueError: boom\n")) == "Traceback:\nValueError: boom\n"
    assert readable('{"message": "only text"}') == "only text"


def test_an_error_file_without_its_front_shows_the_lines_that_are_whole() -> None:
    kept = error_file(CALLSTACK)[-KUBELET_KEEPS:]
    shown = readable(kept)
    assert CALLSTACK.endswith(shown)
    assert shown.startswith("  File")
    assert len(shown) > KUBELET_KEEPS / 2


@given(
    st.text()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    | st.dictionaries(
        st.sampled_from(["message", "extraInfo"]), st.none() | st.integers() | st.lists(st.integers())
    ).map(json.dumps)
)
def test_whatever_else_a_message_is_it_is_shown_as_it_is(message: str) -> None:
    assert readable(message) == message


def test_log_lines_in_json_are_shown_as_they_are() -> None:
    line = '{"level": "error", "text": "a\\\\nb", "timestamp": "1"}'
    assert readable(f"{line}\n{line}") == f"{line}\n{line}"


def test_the_first_failure_and_its_event_show_the_traceback() -> None:
    cluster = started()
    cluster.end(AMD, 1, message=error_file(CALLSTACK)[-KUBELET_KEEPS:])
    outcome = cluster.reconcile()
    assert cluster.status.first_failure.traceback.endswith('ValueError: "boom" \u00e9\n')
    event = next(event for event in outcome.events if event.reason == "PodFailed")
    assert AMD in event.message
    assert event.message.endswith('ValueError: "boom" \u00e9\n')
    assert len(event.message) <= 1024
    assert event.type == "Warning"


def test_a_restart_tells_of_the_failure_too_and_a_disruption_of_none() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1})
    cluster.end(AMD, 1)
    cluster.settle()
    assert cluster.events[-3:] == ["PodFailed", "Restarting", "Started"]
    cluster.run()
    cluster.evict("job-1-amd-0000")
    cluster.settle()
    assert cluster.events.count("PodFailed") == 1
