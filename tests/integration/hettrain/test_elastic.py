"""Elastic jobs against the real API server: the scale subresource, shrinking and growing back."""

from tests.cluster.cluster import Cluster
from tests.integration.hettrain.world import World
from tests.unit.hettrain.documents import pool

FIRST = ("job-0-nvidia-0000", "job-0-amd-0000", "job-0-amd-0001")


def create(world: World, **elastic: object) -> None:
    # Nobody plays the kubelet that ends pods which were scheduled: they go at once.
    template = {
        "spec": {"containers": [{"name": "trainer", "image": "user/image"}], "terminationGracePeriodSeconds": 0}
    }
    world.create(
        pool(maxReplicas=3, template=template),
        pool("amd", vendor="amd", replicas=2, minReplicas=1, template=template),
        elastic=elastic,
    )
    world.until_pods(*FIRST)


def test_kubectl_scale_makes_a_gang_of_that_size(world: World, control_plane: Cluster) -> None:
    create(world, replicas=3)
    world.run()
    world.until_state("Running")
    assert world.status()["replicas"] == 3
    control_plane.kubectl("scale", "htj/job", "--namespace", world.namespace, "--replicas=5")
    world.until_pods(
        *(f"job-1-{name}" for name in ("nvidia-0000", "nvidia-0001", "nvidia-0002", "amd-0000", "amd-0001"))
    )
    world.until("the status says so", lambda: world.status()["replicas"] == 5)
    assert world.status()["restarts"] == 0
    world.until("an event says so", lambda: any(reason == "Resized" for reason, _ in world.events()))


def test_a_pool_shrinks_to_the_pods_that_can_be_had_and_grows_back(world: World) -> None:
    create(world, shrinkAfterSeconds=3)
    world.bind(FIRST[0])
    world.bind(FIRST[1])
    small = ("job-1-nvidia-0000", "job-1-nvidia-0001", "job-1-amd-0000")
    world.until_pods(*small)
    for name in small:
        world.bind(name)
    world.run(*small)
    reserve = "job-1-amd-r000"
    world.until_pods(*small, reserve)
    world.bind(reserve)
    world.until_pods("job-2-nvidia-0000", "job-2-amd-0000", "job-2-amd-0001")
    assert world.status()["restarts"] == 0
