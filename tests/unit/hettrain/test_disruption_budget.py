"""spec.disruptionBudget."""

from tests.unit.hettrain.documents import job, pool
from tests.unit.hettrain.fake_cluster import FakeCluster
from tests.unit.hettrain.worlds import AMD, started


def budgets(cluster: FakeCluster) -> list[str]:
    return [name for kind, name in cluster.objects if kind == "PodDisruptionBudget"]


def test_a_budget_asks_for_every_pod_of_the_attempt_and_holds_no_other() -> None:
    cluster = FakeCluster(job(pool(replicas=3), pool("amd", vendor="amd"), disruptionBudget="Gang"))
    cluster.settle()
    assert budgets(cluster) == ["job-0"]
    budget = cluster.objects["PodDisruptionBudget", "job-0"]
    assert budget["spec"]["minAvailable"] == 4
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    assert all(wanted <= pod["metadata"]["labels"].items() for pod in cluster.pods.values())
    assert ("hetccl.io/attempt", "0") in wanted
    assert budget["metadata"]["ownerReferences"][0]["uid"] == "uid-of-the-job"


def test_the_budget_is_there_before_the_pods() -> None:
    kinds = [action.manifest["kind"] for action in FakeCluster(job(disruptionBudget="Gang")).look().actions]
    assert kinds.index("PodDisruptionBudget") < kinds.index("Pod")


def test_each_attempt_has_a_budget_of_its_own_and_the_old_one_goes() -> None:
    cluster = started(disruptionBudget="Gang", failurePolicy={"maxRestarts": 1})
    cluster.end(AMD, 1)
    cluster.settle()
    assert budgets(cluster) == ["job-1"]


def test_a_job_has_no_budget_unless_it_asks_for_one() -> None:
    assert not budgets(started())
