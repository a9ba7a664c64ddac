"""spec.failurePolicy.rules: what particular failures mean."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, NVIDIA, started


def under(*rules: dict[str, Any], **policy: Any) -> FakeCluster:
    return started(failurePolicy={"maxRestarts": 2, "backoff": {"initialSeconds": 0}, "rules": [*rules], **policy})


def codes(*values: int, operator: str = "In") -> dict[str, Any]:
    return {"operator": operator, "values": [*values]}


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({}, True),
        ({"onExitCodes": codes(2, 42)}, True),
        ({"onExitCodes": codes(41)}, False),
        ({"onExitCodes": codes(41, operator="NotIn")}, True),
        ({"onExitCodes": codes(42, operator="NotIn")}, False),
        ({"onReasons": ["StartError", "Error"]}, True),
        ({"onReasons": ["OOMKilled"]}, False),
        ({"pools": ["amd"]}, True),
        ({"pools": ["nvidia"]}, False),
        ({"onExitCodes": codes(42), "pools": ["nvidia"]}, False),
        ({"onExitCodes": codes(42), "onReasons": ["Error"], "pools": ["nvidia", "amd"]}, True),
    ],
)
def test_a_rule_matches_when_all_of_its_conditions_do(conditions: dict[str, Any], matches: bool) -> None:
    cluster = under({"action": "Fail", **conditions})
    cluster.end(AMD, 42)
    cluster.settle()
    assert (cluster.status.state == "Failed") is matches
    assert cluster.status.restarts == (not matches)


def test_fail_spends_no_budget_and_names_the_rule() -> None:
    cluster = under({"action": "Restart", "pools": ["nvidia"]}, {"action": "Fail"})
    cluster.end(AMD, 42)
    cluster.settle()
    assert cluster.condition("Failed") == ("True", "FailurePolicy")
    message = next(c.message for c in cluster.status.conditions if c.type == "Failed")
    assert AMD in message
    assert "failurePolicy.rules[1]" in message
    assert cluster.status.first_failure.exit_code == 42


def test_the_first_rule_that_matches_wins() -> None:
    cluster = under({"action": "Restart", "onExitCodes": codes(42)}, {"action": "Fail"})
    cluster.end(AMD, 42)
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 1)


def test_restart_is_counted_and_fails_the_job_when_the_budget_is_spent() -> None:
    cluster = under({"action": "Restart"}, maxRestarts=0)
    cluster.end(AMD, 42)
    cluster.settle()
    assert cluster.condition("Failed") == ("True", "PodFailed")


def test_restart_ignore_limit_goes_on_for_ever_with_ever_longer_pauses() -> None:
    cluster = under({"action": "RestartIgnoreLimit"}, maxRestarts=0, backoff={"initialSeconds": 2, "maxSeconds": 5})
    pauses = []
    for _ in range(4):
        cluster.end(next(iter(cluster.pods)), 1)
        failed = cluster.now
        cluster.settle()
        pauses.append((cluster.now - failed).total_seconds())
        cluster.run()
        cluster.settle()
    assert pauses == [2, 4, 5, 5]
    assert (cluster.status.restarts, cluster.status.ignored_restarts) == (0, 4)


def test_out_of_memory_is_a_reason_and_not_exit_code_137() -> None:
    cluster = under({"action": "Fail", "onExitCodes": codes(137)})
    cluster.end(AMD, 137, reason="OOMKilled")
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 1)
    cluster.run()
    cluster.end("job-1-amd-0000", 137)
    cluster.settle()
    assert cluster.condition("Failed") == ("True", "FailurePolicy")


def test_a_rule_by_reason_knows_out_of_memory() -> None:
    cluster = under({"action": "Fail", "onReasons": ["OOMKilled"]})
    cluster.end(AMD, 137, reason="OOMKilled")
    cluster.settle()
    assert cluster.status.state == "Failed"


def test_out_of_memory_never_restarts_without_end() -> None:
    cluster = under({"action": "RestartIgnoreLimit"})
    for attempt in range(3):
        cluster.end(f"job-{attempt}-amd-0000", 137, reason="OOMKilled")
        cluster.settle()
        cluster.run()
    assert (cluster.status.state, cluster.status.restarts, cluster.status.ignored_restarts) == ("Failed", 2, 0)


def test_of_failures_of_one_second_the_one_that_a_rule_knows_is_the_first() -> None:
    cluster = under({"action": "Fail", "onExitCodes": codes(42)})
    cluster.end(NVIDIA, 1)
    cluster.end(AMD, 42)
    cluster.settle()
    assert cluster.status.state == "Failed"
    assert cluster.status.first_failure.pod == AMD


def test_a_rule_does_not_see_failures_that_followed_the_first() -> None:
    cluster = under({"action": "Fail", "onExitCodes": codes(42)})
    cluster.end(NVIDIA, 1)
    cluster.now += timedelta(seconds=1)
    cluster.end(AMD, 42)
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 1)
    assert cluster.status.first_failure.pod == NVIDIA


def test_a_disruption_is_no_failure_whatever_the_rules_say() -> None:
    cluster = under({"action": "Fail"})
    cluster.evict(NVIDIA)
    cluster.end(AMD, 1)
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.restarts, cluster.status.ignored_restarts) == (1, 0, 0)


def test_a_rule_may_be_added_while_the_job_runs() -> None:
    cluster = under()
    policy = under({"action": "Fail"}).job.spec.failure_policy
    cluster.change(failure_policy=policy)
    cluster.end(AMD, 1)
    cluster.settle()
    assert cluster.status.state == "Failed"
