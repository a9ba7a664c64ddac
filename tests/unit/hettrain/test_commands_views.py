"""What the commands say of a job: pure functions of the API server's objects."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hettrain.api import load
from hettrain.commands import events, status
from hettrain.commands.follow import Line
from hettrain.commands.screen import Columns, Lines, age, plain
from hettrain.commands.top import quantity
from hettrain.commands.wait import Goal, judge
from hettrain.status.pods import observe

from tests.unit.hettrain.documents import document, pool

FAILURE = {"attempt": 1, "pod": "job-1-a-0001", "pool": "a", "rank": 2, "node": "n1", "exitCode": 3, "reason": "Error"}


def pod(pool: str, index: int, phase: str = "Running", node: str = "n1") -> Any:
    labels = {"hetccl.io/attempt": "0", "hetccl.io/pool": pool, "hetccl.io/index": str(index)}
    return observe(
        {
            "metadata": {"name": f"job-0-{pool}-{index:04d}", "labels": labels},
            "spec": {"nodeName": node},
            "status": {"phase": phase},
        }
    )


def described(pods: list[Any], **found: Any) -> dict[str, Any]:
    job = document(pool("a", replicas=2, gpusPerReplica=2), pool("b", vendor="amd"))
    return status.describe(load({**job, "status": found}), pods)


def test_status_maps_every_rank_to_its_pod_and_node() -> None:
    shown = described([pod("a", 0), pod("b", 0, "Pending", "")], pools=[{"name": "a", "completedIndexes": "1"}])
    assert [(r["rank"], r["pool"], r["vendor"], r["pod"], r["node"], r["state"]) for r in shown["ranks"]] == [
        (0, "a", "nvidia", "job-0-a-0000", "n1", "running"),
        (1, "a", "nvidia", "job-0-a-0000", "n1", "running"),
        (2, "a", "nvidia", None, None, "succeeded"),
        (3, "a", "nvidia", None, None, "succeeded"),
        (4, "b", "amd", "job-0-b-0000", None, "waiting"),
    ]


def test_the_tables_have_a_row_for_each_pod_and_the_whole_first_failure() -> None:
    text = plain(status.blocks(described([pod("a", 0)], firstFailure={**FAILURE, "traceback": "one\ntwo\n"})))
    assert "0-1   a     nvidia  job-0-a-0000  n1    running" in text
    assert "2-3   a     nvidia  -             -     none" in text
    assert text.endswith(
        "first failure: attempt 1, pod job-1-a-0001 (pool a, rank 2 on node n1): Error, exit code 3\n    one\n    two"
    )


def test_a_job_that_no_operator_has_seen_is_pending() -> None:
    assert plain(status.blocks(described([]))).startswith("team/job: Pending\n")


def test_plain_tables_cut_nothing_and_keep_one_line_a_row() -> None:
    long = "x" * 500
    assert plain([Columns(("A", "B"), [["1", f"{long}\nsecond"], ["22", ""]]), Lines(["end"])]) == (
        f"A   B\n1   {long} second\n22\n\nend"
    )


@pytest.mark.parametrize(
    ("goal", "state", "verdict"),
    [
        ("complete", "Complete", True),
        ("complete", "Failed", False),
        ("complete", "Running", None),
        ("complete", "Suspended", None),
        ("failed", "Failed", True),
        ("failed", "Complete", False),
        ("running", "Running", True),
        ("running", "Complete", True),
        ("running", "Failed", False),
        ("running", "Restarting", None),
    ],
)
def test_wait_judges_by_the_state(goal: Goal, state: str, verdict: bool | None) -> None:
    job = {"metadata": {"generation": 2}, "status": {"state": state, "observedGeneration": 2}}
    assert judge(goal, job) is verdict
    assert judge(goal, {**job, "metadata": {"generation": 3}}) is None, "the status is about an older spec"
    assert judge(goal, {"metadata": {"generation": 1}}) is None


def event(kind: str, name: str, when: str, uid: str = "", **more: Any) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "uid": uid}
    return {"metadata": {"creationTimestamp": when}, "involvedObject": about, "lastTimestamp": when, **more}


def test_events_are_those_of_the_job_and_its_pods_in_their_order() -> None:
    job = document(pool("a"), name="train")
    job["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:10Z"}
    found = events.describe(
        job,
        [
            event("Pod", "train-0-a-0000", "2026-01-01T00:00:30Z", reason="Pulled", count=3),
            event("HetTrainingJob", "train", "2026-01-01T00:00:20Z", "u", reason="Started"),
            event("HetTrainingJob", "train", "2026-01-01T00:00:20Z", "of an earlier job", reason="Failed"),
            event("Pod", "train-0-a-0000", "2026-01-01T00:00:05Z", reason="of an earlier job"),
            event("Pod", "train-0-a-0-a-0000", "2026-01-01T00:00:30Z", reason="of the job train-0-a"),
            event("Pod", "train-1-a-0000", "2026-01-01T00:00:10.500000Z", reason="Scheduled"),
        ],
    )
    assert [(e["reason"], e["object"], e["count"]) for e in found] == [
        ("Scheduled", "train-1-a-0000", 1),
        ("Started", "job", 1),
        ("Pulled", "train-0-a-0000", 3),
    ]
    assert plain([events.table(found)]).endswith("Pulled     train-0-a-0000  (3 times)")
    assert len(plain([events.table(found, head=False)]).splitlines()) == len(found)


def test_a_log_line_is_split_from_its_time_and_compared_over_time_zones() -> None:
    early = Line.of(pod("a", 0), "2026-01-01T02:00:00.900000000+02:00 one  two")
    late = Line.of(pod("b", 0), "2026-01-01T00:00:01.000000000Z ")
    assert (early.text, early.pool, late.text) == ("one  two", "a", "")
    assert early.moment < late.moment
    kubelets = Line.of(pod("a", 0), "unable to retrieve container logs")
    assert (kubelets.time, kubelets.text) == ("", "unable to retrieve container logs")
    assert kubelets.moment < early.moment


@pytest.mark.parametrize(
    ("text", "value"), [("250m", "0.25"), ("1500000n", "0.0015"), ("2", "2"), ("1Gi", "1073741824"), ("1.5k", "1500")]
)
def test_quantities(text: str, value: str) -> None:
    assert quantity(text) == Decimal(value)


def test_ages_are_in_their_largest_unit() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert [age(t, now) for t in ("2026-01-01T23:59:01Z", "2026-01-01T23:00:00Z", "2025-12-01T00:00:00Z", None)] == [
        *("59s", "60m", "32d", "-")
    ]
