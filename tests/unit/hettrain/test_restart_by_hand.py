"""The annotation hetccl.io/restart."""

from hettrain.store import Store

from tests.unit.hettrain.documents import document, job
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, started

SECOND = ["job-1-amd-0000", "job-1-nvidia-0000"]


def test_a_new_value_starts_the_gang_over_once_and_counts_nowhere() -> None:
    cluster = started()
    cluster.ask_restart("now")
    cluster.settle()
    assert sorted(cluster.pods) == SECOND
    assert (cluster.status.restarts, cluster.status.ignored_restarts) == (0, 0)
    assert cluster.events.count("RestartRequested") == 1
    cluster.run()
    cluster.settle()
    assert cluster.status.attempt == 1
    cluster.ask_restart("again")
    cluster.settle()
    assert cluster.status.attempt == 2


def test_a_job_that_is_born_with_the_annotation_is_not_restarted() -> None:
    cluster = FakeCluster(job())
    cluster.ask_restart("copied from another job")
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert cluster.status.attempt == 0


def test_taking_the_annotation_away_is_no_restart() -> None:
    cluster = started()
    cluster.ask_restart("now")
    cluster.settle()
    cluster.ask_restart("")
    cluster.settle()
    assert cluster.status.attempt == 1


def test_a_value_set_while_suspended_does_not_restart_what_resumes() -> None:
    cluster = started()
    cluster.change(suspend=True)
    cluster.settle()
    cluster.ask_restart("now")
    cluster.settle()
    assert not cluster.pods
    cluster.change(suspend=False)
    cluster.settle()
    assert sorted(cluster.pods) == SECOND


def test_a_restart_by_hand_ends_a_pause() -> None:
    cluster = started(failurePolicy={"maxRestarts": 3, "backoff": {"initialSeconds": 200}})
    cluster.end(AMD, 1)
    cluster.reconcile()
    cluster._reap()
    since = cluster.now
    cluster.ask_restart("now")
    cluster.settle()
    assert len(cluster.pods) == 2
    assert cluster.now == since
    assert cluster.status.restarts == 1


def test_a_job_that_is_over_stays_over() -> None:
    cluster = started()
    cluster.end(AMD, 1)
    cluster.settle()
    cluster.ask_restart("now")
    cluster.settle()
    assert (cluster.status.state, cluster.status.attempt) == ("Failed", 0)


def test_a_value_of_any_length_restarts_once() -> None:
    cluster = started()
    cluster.ask_restart("x" * 100_000)
    cluster.settle()
    cluster.run()
    cluster.settle()
    assert cluster.status.attempt == 1
    assert len(cluster.status.restart_request) == 256


def test_the_store_keeps_this_annotation_and_no_other() -> None:
    store, found = Store(), document()
    found["metadata"] |= {"resourceVersion": "1", "annotations": {"hetccl.io/restart": "now", "big": "x" * 1000}}
    store.put_job(found)
    assert store.jobs["uid-of-the-job"]["metadata"]["annotations"] == {"hetccl.io/restart": "now"}
