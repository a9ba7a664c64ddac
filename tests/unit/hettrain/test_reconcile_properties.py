"""Whatever happens in whatever order, a job ends where its spec wants it, and nothing is done twice."""

from collections.abc import Callable, Mapping
from typing import Any

from hettrain.reconcile import Children
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.hettrain.documents import job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster

Move = tuple[str, int]

UNCOUNTED = 75
"""The exit code that a rule of the failure policy leaves uncounted."""

PLAYERS: dict[str, Callable[[FakeCluster, str], None]] = {
    "run": lambda cluster, name: cluster.run(name),
    "succeed": lambda cluster, name: cluster.end(name),
    "fail": lambda cluster, name: cluster.end(name, 1),
    "fail uncounted": lambda cluster, name: cluster.end(name, UNCOUNTED),
    "evict": lambda cluster, name: cluster.evict(name),
    "delete": lambda cluster, name: cluster.ask_deletion(name),
    "vanish": lambda cluster, name: cluster.vanish(name),
    "lose node": lambda cluster, name: cluster.lose_node(name),
}
UPSETTING = {"fail", "fail uncounted", "evict", "delete", "vanish", "lose node", "suspend", "restart", "take back"}
GANG = 3
MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            [*PLAYERS, "reconcile", "reconcile", "die", "suspend", "resume", "reap", "settle", "budget", "restart"]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


def play(cluster: FakeCluster, moves: list[Move], check: Callable[[], None]) -> int:
    """Play the moves; returns how many failures were dealt out."""
    failures = 0
    for move, number in moves:
        unfinished = [
            name
            for name, pod in cluster.pods.items()
            if pod["status"]["phase"] in ("Pending", "Running") and not pod["spec"].get("schedulingGates")
        ]
        names = unfinished if move in ("run", "succeed", "fail", "fail uncounted") else list(cluster.pods)
        match move:
            case "reconcile":
                cluster.reconcile()
            case "die":
                cluster.reconcile(steps=number)
            case "suspend" | "resume":
                cluster.change(suspend=move == "suspend")
            case "budget":
                policy = cluster.job.spec.failure_policy.model_copy(update={"max_restarts": number})
                cluster.change(failure_policy=policy)
            case "restart":
                cluster.ask_restart(str(number))
            case "admit":
                # Kueue admits a whole group, or none of it.
                if len(gang_of(cluster)) == GANG:
                    cluster.admit()
            case "take back":
                if unfinished:
                    cluster.take_back("WorkloadEvictedDueToPreempted", "somebody else's turn")
            case "reap":
                cluster._reap()
            case "settle":
                cluster.settle()
            case _ if names:
                failures += move == "fail"
                PLAYERS[move](cluster, names[number % len(names)])
        check()
    return failures


def gang_of(cluster: FakeCluster) -> list[str]:
    return [name for name in cluster.pods if name.startswith(f"job-{cluster.status.attempt}-")]


def new_cluster(**spec: Any) -> FakeCluster:
    rule = {"action": "RestartIgnoreLimit", "onExitCodes": {"operator": "In", "values": [UNCOUNTED]}}
    policy = {"maxRestarts": 2, "backoff": {"initialSeconds": 1, "maxSeconds": 3}, "rules": [rule]}
    pools = (pool(replicas=2), pool("amd", vendor="amd"))
    return FakeCluster(job(*pools, failurePolicy=policy, disruptionBudget="Gang", **spec))


def finish(cluster: FakeCluster) -> None:
    """No more bad luck: lost nodes come back, pods run and succeed, until nothing changes."""
    for _ in range(4):
        for pod in cluster.pods.values():
            pod["spec"]["nodeName"] = "node"
        cluster._reap()
        cluster.settle()
        cluster.manage()
        cluster.admit()
        cluster.settle()
        cluster.run()
        cluster.settle()
        for name, pod in cluster.pods.items():
            if pod["status"]["phase"] == "Running":
                cluster.end(name)
        cluster.settle()


@settings(max_examples=300, deadline=None)
@given(MOVES)
def test_a_job_ends_where_its_spec_wants_it(moves: list[Move]) -> None:
    cluster = new_cluster()
    failures = play(cluster, moves, lambda: None)
    finish(cluster)
    status = cluster.status
    assert status.restarts <= failures
    assert status.ignored_restarts <= sum(move == "fail uncounted" for move, _ in moves)
    assert status.attempt <= sum(move in UPSETTING for move, _ in moves), "a restart for nothing"
    if status.state == "Failed":
        assert failures > status.restarts, "a disruption never fails a job"
        assert status.first_failure is not None
    elif cluster.job.spec.suspend and status.state != "Complete":
        assert status.state == "Suspended"
        assert not cluster.pods
    else:
        assert status.state == "Complete"
        assert [found.completed_indexes for found in status.pools] == ["0-1", "0"]
    running = [name for name, pod in cluster.pods.items() if pod["status"]["phase"] not in ("Succeeded", "Failed")]
    assert not running
    assert not cluster.look().actions
    assert cluster.look().status == status


@settings(max_examples=200, deadline=None)
@given(MOVES)
def test_attempts_and_restarts_only_grow_and_no_gang_gets_a_pod_twice(moves: list[Move]) -> None:
    cluster = new_cluster()
    seen = [(0, 0)]
    whole: dict[int, int] = {}

    def made(attempt: int) -> int:
        return sum(name.startswith(f"job-{attempt}-") for name in cluster.created)

    def check() -> None:
        now = (cluster.status.attempt, cluster.status.restarts)
        assert all(new >= old for new, old in zip(now, seen[-1], strict=True))
        seen.append(now)
        if sum(found.active + found.succeeded for found in cluster.status.pools) == GANG:
            whole.setdefault(cluster.status.attempt, made(cluster.status.attempt))
        assert all(made(attempt) == count for attempt, count in whole.items()), "a rank was replaced in a running gang"

    play(cluster, moves, check)


@settings(max_examples=200, deadline=None)
@given(MOVES)
def test_a_new_attempt_never_runs_beside_an_old_one_that_is_not_stuck(moves: list[Move]) -> None:
    cluster = new_cluster()

    def check() -> None:
        alive: dict[str, list[Mapping[str, Any]]] = {}
        for pod in cluster.pods.values():
            if pod["status"]["phase"] in ("Pending", "Running") and pod["spec"].get("nodeName") != "lost":
                alive.setdefault(pod["metadata"]["labels"]["hetccl.io/attempt"], []).append(pod)
        assert len(alive) <= 1, f"attempts {list(alive)} run together"

    play(cluster, moves, check)


@settings(max_examples=200, deadline=None)
@given(MOVES, st.integers(0, 10))
def test_an_operator_that_sees_its_pods_late_decides_the_same(moves: list[Move], lag: int) -> None:
    """The watch lags behind the writes: what is seen is an older state, never one that was not."""
    cluster = new_cluster()
    history: list[Children] = []
    honest = cluster.children

    def late() -> Children:
        history.append(honest())
        return history[max(0, len(history) - 1 - lag % 3)]

    cluster.children = late  # type: ignore[method-assign]
    failures = play(cluster, [move for move in moves if move[0] != "settle"], lambda: None)
    cluster.children = honest  # type: ignore[method-assign]
    finish(cluster)
    assert cluster.status.restarts <= failures
    assert cluster.status.state in ("Complete", "Failed", "Suspended")
    assert cluster.status.attempt <= sum(move in UPSETTING for move, _ in moves), "a restart for nothing"


QUEUE = [("admit", 0)] * 3 + [("take back", 0)] * 2
QUEUED = MOVES.flatmap(lambda moves: st.permutations([*moves, *QUEUE]))


@settings(max_examples=200, deadline=None)
@given(QUEUED)
def test_a_job_in_a_queue_ends_where_its_spec_wants_it_and_has_no_time_before_it_is_admitted(moves: list[Move]) -> None:
    cluster = new_cluster(scheduling={"queue": "team"})

    def check() -> None:
        gated = [name for name in gang_of(cluster) if cluster.pods[name]["spec"].get("schedulingGates")]
        if gated:
            assert cluster.status.attempt_start_time is None, "a clock runs while the job waits"

    failures = play(cluster, moves, check)
    finish(cluster)
    status = cluster.status
    assert status.restarts <= failures
    assert status.attempt <= sum(move in UPSETTING for move, _ in moves), "a restart for nothing"
    if status.state == "Failed":
        assert failures > status.restarts, "an eviction never fails a job"
    else:
        assert status.state == ("Suspended" if cluster.job.spec.suspend and status.state != "Complete" else "Complete")
    assert not cluster.look().actions
