"""What Prometheus is told."""

import json
import logging
import re
from pathlib import Path

import pytest
from hettrain.api import JobStatus
from hettrain.api.status import PoolStatus
from hettrain.logs import about, set_up_logs
from hettrain.metrics import Metrics, restart_cause
from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = Path(__file__).parents[3] / "charts" / "hettrain" / "dashboards" / "hettrain.json"
RUNNING = JobStatus(attempt=1, start_time="2026-01-01T00:00:00Z", attempt_start_time="2026-01-01T00:00:10Z")


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels."""
    return {
        f"{sample.name}{json.dumps(sample.labels, sort_keys=True) if sample.labels else ''}": sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"attempt": 2, "restarts": 1}, "failure"),
        ({"attempt": 2, "ignored_restarts": 1}, "ignored_failure"),
        ({"attempt": 2, "restart_request": "now"}, "request"),
        ({"attempt": 2}, "disruption"),
        ({"attempt": 2, "start_time": None}, ""),  # suspended
        ({"restarts": 1}, ""),
    ],
)
def test_restarts_are_counted_by_their_cause(change: dict[str, object], cause: str) -> None:
    after = RUNNING.model_copy(update=change)
    assert restart_cause(RUNNING, after) == cause
    metrics = Metrics()
    metrics.changed(RUNNING, after)
    counted = {key: value for key, value in samples(metrics).items() if key.startswith("hettrain_job_restarts_total")}
    assert counted == ({f'hettrain_job_restarts_total{{"cause": "{cause}"}}': 1.0} if cause else {})


def test_the_time_until_all_pods_are_ready_is_told_once_an_attempt() -> None:
    metrics = Metrics()
    ready = RUNNING.model_copy(update={"ready_time": "2026-01-01T00:00:52Z"})
    metrics.changed(RUNNING, ready)
    metrics.changed(ready, ready.model_copy(update={"world_size": 3}))
    told = samples(metrics)
    assert (told["hettrain_job_pods_ready_seconds_count"], told["hettrain_job_pods_ready_seconds_sum"]) == (1, 42)


def test_jobs_are_counted_by_state_and_shares_told_where_there_are_some() -> None:
    metrics = Metrics()
    balanced = JobStatus(state="Running", pools=[PoolStatus(name="a", share="74%"), PoolStatus(name="b", share="26%")])
    statuses = [balanced, JobStatus(state="Running", pools=[PoolStatus(name="a")]), JobStatus()]
    metrics.jobs = lambda: [
        {"metadata": {"namespace": "team", "name": f"job{number}"}, "status": status.dump()}
        for number, status in enumerate(statuses)
    ]
    told = samples(metrics)
    assert told['hettrain_jobs{"state": "Running"}'] == 2
    assert told['hettrain_jobs{"state": "Unknown"}'] == 1
    shares = {key: value for key, value in told.items() if key.startswith("hettrain_job_pool_share_ratio")}
    assert list(shares.values()) == [0.74, 0.26]
    assert all('"job": "job0", "namespace": "team"' in key for key in shares)


def test_the_dashboard_asks_for_nothing_that_is_not_told() -> None:
    metrics = Metrics()
    metrics.request("GET", "pods", 429)
    metrics.reconciled(0.1, failed=True)
    metrics.changed(RUNNING, RUNNING.model_copy(update={"attempt": 2}))
    told = {key.partition("{")[0] for key in samples(metrics)}
    told |= {family.name for family in text_string_to_metric_families(metrics.text().decode())}
    asked = set(re.findall(r"\b(?:hettrain|process)_\w+", DASHBOARD.read_text()))
    assert asked
    assert asked <= told


def test_json_log_lines_carry_the_job_that_they_are_about(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:]
    try:
        set_up_logs("json")
        about.set({"job": "team/job", "uid": "u", "attempt": 3})
        logging.getLogger("hettrain.test").info("said")
    finally:
        logging.getLogger().handlers[:] = before
        about.set({})
    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["job"], line["uid"], line["attempt"]) == ("said", "team/job", "u", 3)
