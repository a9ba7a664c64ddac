"""spec.elastic: sizes of pools, how they shrink and grow, and what a change of size is."""

from datetime import timedelta
from typing import Any

import pytest
from hettrain.plan.allocation import allocate, bounds
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hettrain.documents import job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster

WAIT = 60


@st.composite
def elastic_jobs(draw: st.DrawFn) -> tuple[Any, dict[str, int]]:
    pools = []
    for number in range(draw(st.integers(1, 4))):
        least = draw(st.integers(1, 6))
        replicas = draw(st.integers(least, 12))
        most = draw(st.integers(replicas, 20))
        pools.append(pool(f"p{number}", replicas=replicas, minReplicas=least, maxReplicas=most))
    total = draw(st.none() | st.integers(sum(p["minReplicas"] for p in pools), sum(p["maxReplicas"] for p in pools)))
    caps = {p["name"]: draw(st.integers(0, 25)) for p in pools if draw(st.booleans())}
    return job(*pools, elastic={"replicas": total} if total else {}).spec, caps


@given(elastic_jobs())
def test_pools_stay_within_their_bounds_and_add_up_to_what_is_asked(case: tuple[Any, dict[str, int]]) -> None:
    spec, caps = case
    found = allocate(spec, caps)
    asked = spec.elastic.replicas or sum(pool.replicas for pool in spec.pools)
    room = {pool.name: max(bounds(pool)[0], min(bounds(pool)[1], caps.get(pool.name, 99))) for pool in spec.pools}
    assert all(bounds(pool)[0] <= found[pool.name] <= room[pool.name] for pool in spec.pools)
    assert sum(found.values()) == min(asked, sum(room.values()))


@given(elastic_jobs())
def test_no_pool_lags_behind_another_by_more_than_a_pod(case: tuple[Any, dict[str, int]]) -> None:
    spec, _ = case
    found = allocate(spec, {})
    for one in spec.pools:
        for other in spec.pools:
            above_least = found[one.name] > bounds(one)[0]
            below_most = found[other.name] < bounds(other)[1]
            if above_least and below_most:
                assert (found[one.name] - 1) / one.replicas <= found[other.name] / other.replicas


def names(attempt: int, nvidia: int, amd: int) -> list[str]:
    return sorted(
        [f"job-{attempt}-amd-{i:04d}" for i in range(amd)] + [f"job-{attempt}-nvidia-{i:04d}" for i in range(nvidia)]
    )


def elastic_job(**elastic: Any) -> FakeCluster:
    """Two pools of 1 to 4 pods, 2 as a rule; their pods have just been made."""
    pools = [pool(v, vendor=v, replicas=2, minReplicas=1, maxReplicas=4) for v in ("nvidia", "amd")]
    cluster = FakeCluster(job(*pools, elastic=elastic))
    cluster.settle()
    return cluster


def scale(cluster: FakeCluster, replicas: int) -> None:
    cluster.change(elastic=cluster.job.spec.elastic.model_copy(update={"replicas": replicas}))
    cluster.settle()


def pass_time(cluster: FakeCluster, seconds: float) -> None:
    cluster.now += timedelta(seconds=seconds)
    cluster.settle()


def place(cluster: FakeCluster, name: str) -> None:
    """The scheduler finds a node for a pod."""
    found = cluster.pods[name]
    found["spec"]["nodeName"] = "node"
    at = cluster.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    found["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]


def test_scaling_makes_a_new_gang_whose_ranks_are_dense_and_blames_nobody() -> None:
    cluster = elastic_job()
    assert sorted(cluster.pods) == names(0, 2, 2)
    cluster.run()
    scale(cluster, 7)
    assert sorted(cluster.pods) == names(1, 4, 3)
    status = cluster.status
    assert (status.restarts, status.replicas, status.world_size) == (0, 7, 7)
    assert status.summary.pools == "nvidia:4 amd:3"
    assert status.selector == "hetccl.io/job-name=job"
    environment = [
        {entry["name"]: entry.get("value") for entry in found["spec"]["containers"][0]["env"]}
        for _, found in sorted(cluster.pods.items())
    ]
    assert sorted(int(env["PET_NODE_RANK"]) for env in environment) == list(range(7))
    assert {env["PET_NNODES"] for env in environment} == {"7"}
    assert "Resized" in cluster.events


def test_scaling_keeps_the_order_of_more_than_ten_pods_of_a_pool() -> None:
    cluster = FakeCluster(job(pool(replicas=2, maxReplicas=14), elastic={"replicas": 13}))
    cluster.settle()
    ranks = {
        name: next(e["value"] for e in found["spec"]["containers"][0]["env"] if e["name"] == "PET_NODE_RANK")
        for name, found in cluster.pods.items()
    }
    assert [int(ranks[name]) for name in sorted(ranks)] == list(range(13))


def test_pods_that_find_no_node_for_long_make_their_pool_smaller() -> None:
    cluster = elastic_job(shrinkAfterSeconds=WAIT)
    for name in names(0, 2, 1):
        place(cluster, name)
    pass_time(cluster, WAIT - 1)
    assert cluster.status.attempt == 0
    pass_time(cluster, 1)
    # What one pool lacks the other may have in its place, as far as its maxReplicas go.
    assert sorted(cluster.pods) == names(1, 3, 1)
    assert cluster.status.caps == {"amd": 1}


def test_a_pool_never_shrinks_below_its_least() -> None:
    cluster = elastic_job(shrinkAfterSeconds=WAIT)
    for name in names(0, 2, 0):
        place(cluster, name)
    pass_time(cluster, 10 * WAIT)
    assert cluster.status.attempt == 0
    assert sorted(cluster.pods) == names(0, 2, 2)


def test_without_shrink_after_seconds_pods_are_waited_for() -> None:
    cluster = elastic_job()
    place(cluster, "job-0-nvidia-0000")
    pass_time(cluster, 10000)
    assert cluster.status.attempt == 0


def shrunken() -> FakeCluster:
    """A job of 1 to 2 pods in pool amd, which got one, and runs."""
    pools = [pool(), pool("amd", vendor="amd", replicas=3, minReplicas=1)]
    cluster = FakeCluster(job(*pools, elastic={"shrinkAfterSeconds": WAIT}))
    cluster.settle()
    for name in names(0, 1, 1):
        place(cluster, name)
    pass_time(cluster, WAIT)
    assert sorted(cluster.pods) == names(1, 1, 1)
    cluster.run()
    cluster.settle()
    return cluster


RESERVE = ("job-1-amd-r000", "job-1-amd-r001")


def test_reserve_pods_wait_for_what_is_missing_as_the_pools_own_would() -> None:
    cluster = shrunken()
    assert sorted(cluster.pods) == sorted([*names(1, 1, 1), *RESERVE])
    own, reserve = (cluster.pods[name] for name in ("job-1-amd-0000", RESERVE[0]))
    assert reserve["spec"]["containers"][0]["resources"] == own["spec"]["containers"][0]["resources"]
    assert reserve["spec"]["containers"][0]["command"] == ["sleep", "infinity"]
    assert "hetccl.io/index" not in reserve["metadata"]["labels"]
    assert cluster.status.state == "Running"


def test_a_pool_grows_back_when_all_that_is_missing_can_be_had() -> None:
    cluster = shrunken()
    place(cluster, RESERVE[0])
    cluster.settle()
    assert cluster.status.attempt == 1
    place(cluster, RESERVE[1])
    cluster.settle()
    assert sorted(cluster.pods) == names(2, 1, 3)
    assert cluster.status.caps == {}
    assert cluster.status.restarts == 0


def test_a_pool_grows_by_what_there_is_when_no_more_comes() -> None:
    cluster = shrunken()
    place(cluster, RESERVE[0])
    pass_time(cluster, WAIT)
    assert sorted(cluster.pods) == names(2, 1, 2)
    assert cluster.status.caps == {"amd": 2}


@pytest.mark.parametrize("ending", ["suspend", "success", "failure"])
def test_reserve_pods_go_with_the_gang(ending: str) -> None:
    cluster = shrunken()
    if ending == "suspend":
        cluster.change(suspend=True)
    else:
        for name in names(1, 1, 1):
            cluster.end(name, 0 if ending == "success" else 1)
    cluster.settle()
    cluster._reap()
    assert not set(RESERVE) & set(cluster.pods)


def test_resuming_tries_the_whole_size_again() -> None:
    cluster = shrunken()
    cluster.change(suspend=True)
    cluster.settle()
    cluster.change(suspend=False)
    cluster.settle()
    assert sorted(cluster.pods) == names(cluster.status.attempt, 1, 3)
