"""Which of the pods that fail together is named as the first, and is what the rules look at."""

from datetime import timedelta

import pytest

from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, NVIDIA, started

LOST = "hetccl.errors.CollectiveError: rank 0: all_reduce #7 of group 0: rank 2 was lost"


def told_first(cluster: FakeCluster) -> str:
    assert cluster.status.first_failure is not None
    return cluster.status.first_failure.pod


def test_a_killed_rank_is_named_though_its_peer_is_seen_to_fail_before_it() -> None:
    cluster = started(failurePolicy={"maxRestarts": 1})
    cluster.end(NVIDIA, 1, ago=0)
    cluster.reconcile()
    cluster.now += timedelta(seconds=1)
    cluster.end(AMD, 137, ago=1)
    cluster.settle()
    assert told_first(cluster) == AMD
    assert (cluster.status.attempt, cluster.status.restarts) == (1, 1)


def test_a_failure_is_acted_on_soon_where_no_other_shows_up() -> None:
    cluster = started()
    cluster.end(AMD, 1, ago=0)
    outcome = cluster.reconcile()
    assert cluster.condition("Failed") == ("", "")
    assert outcome.requeue_after is not None
    assert outcome.requeue_after <= 3
    cluster.now += timedelta(seconds=outcome.requeue_after)
    cluster.reconcile()
    assert cluster.status.state == "Failed"


def test_nothing_is_waited_for_once_all_have_failed() -> None:
    cluster = started()
    cluster.end(NVIDIA, 1, ago=0)
    cluster.end(AMD, 1, ago=0)
    cluster.reconcile()
    assert cluster.status.state == "Failed"


@pytest.mark.parametrize("ahead", [4, 3600])
def test_a_node_whose_clock_runs_ahead_delays_nothing(ahead: float) -> None:
    cluster = started()
    cluster.end(AMD, 1, ago=-ahead)
    cluster.reconcile()
    assert cluster.status.state == "Failed"


def test_a_rank_that_only_lost_its_peer_is_not_the_first() -> None:
    cluster = started()
    cluster.end(NVIDIA, 1, message=LOST)
    cluster.end(AMD, 1, message="ValueError: boom")
    cluster.settle()
    assert told_first(cluster) == AMD


def test_memory_that_ran_out_is_what_the_rules_see_and_not_the_peer_that_lost_it() -> None:
    rules = [{"action": "RestartIgnoreLimit", "onExitCodes": {"operator": "In", "values": [1]}}]
    cluster = started(failurePolicy={"rules": rules})
    cluster.end(NVIDIA, 1)
    cluster.end(AMD, 137, reason="OOMKilled")
    cluster.settle()
    assert cluster.status.state == "Failed"
    assert told_first(cluster) == AMD
