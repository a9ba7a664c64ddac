"""spec.successPolicy: when a job has succeeded."""

from typing import Any

import pytest

from tests.unit.hettrain.documents import pool
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import started

PODS = {name: f"job-0-{name[:-1]}-000{name[-1]}" for name in ("a0", "a1", "b0", "c0")}


def under(**policy: Any) -> FakeCluster:
    return started(pool("a", replicas=2), pool("b"), pool("c"), successPolicy=policy)


@pytest.mark.parametrize(
    ("policy", "succeeded", "complete"),
    [
        ({}, "a0 a1 b0", False),
        ({}, "a0 a1 b0 c0", True),
        ({"pools": ["a"]}, "a0 b0 c0", False),
        ({"pools": ["a"]}, "a0 a1", True),
        ({"pools": ["a", "b"]}, "a0 a1 c0", False),
        ({"pools": ["b", "a"]}, "a0 a1 b0", True),
        ({"operator": "Any"}, "a0", False),
        ({"operator": "Any"}, "a0 a1", True),
        ({"operator": "Any"}, "c0", True),
        ({"operator": "Any", "pools": ["a", "b"]}, "a1 c0", False),
        ({"operator": "Any", "pools": ["a", "b"]}, "b0", True),
    ],
)
def test_the_pools_that_count_decide(policy: dict[str, Any], succeeded: str, complete: bool) -> None:
    cluster = under(**policy)
    for name in succeeded.split():
        cluster.end(PODS[name])
    cluster.settle()
    assert (cluster.status.state == "Complete") is complete


def test_pods_that_are_not_waited_for_are_deleted_and_the_pools_that_succeeded_named() -> None:
    cluster = under(operator="Any")
    cluster.end(PODS["b0"])
    cluster.settle()
    assert list(cluster.pods) == [PODS["b0"]]
    assert cluster.condition("Complete") == ("True", "SuccessPolicy")
    assert next(c.message for c in cluster.status.conditions if c.type == "Complete").endswith("of pool b")


def test_success_that_was_recorded_counts_after_its_pod_is_gone() -> None:
    cluster = under(pools=["a"])
    cluster.end(PODS["a0"])
    cluster.settle()
    cluster.vanish(PODS["a0"])
    cluster.end(PODS["a1"])
    cluster.settle()
    assert cluster.status.state == "Complete"


def test_success_outweighs_a_failure_seen_with_it() -> None:
    cluster = under(pools=["a"])
    for name, code in (("a0", 0), ("a1", 0), ("c0", 1)):
        cluster.end(PODS[name], code)
    cluster.settle()
    assert cluster.status.state == "Complete"
    assert cluster.status.first_failure is None


def test_a_pool_that_does_not_count_still_restarts_the_gang() -> None:
    cluster = under(pools=["a"])
    cluster.end(PODS["c0"], 1)
    cluster.settle()
    assert cluster.status.state == "Failed"
