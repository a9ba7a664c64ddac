"""The harness's real nodes: containers, devices, names and Services."""

from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import SimulatedGpus
from tests.cluster.processes import poll

BUSYBOX = "registry.local/busybox:1"


def test_a_container_gets_simulated_gpus_from_the_kubelet_of_the_node_that_has_them(cluster: Cluster) -> None:
    resource = "example.com/gpu"
    gpus = SimulatedGpus(cluster.nodes["node2"].device_plugins, resource, 3)
    gpus.start()
    try:
        poll("node2 offers them", lambda: allocatable(cluster, "node2", resource) == "3", 60)
        cluster.apply(pod("wants-gpus", "echo $SIMULATED_GPUS", {resource: "2"}))
        poll("the pod ends", lambda: cluster.get("pod", "wants-gpus")["status"]["phase"] == "Succeeded", 60)
        assert cluster.get("pod", "wants-gpus")["spec"]["nodeName"] == "node2"
        assert len(gpus.allocated) == 1
        assert len(gpus.allocated[0]) == 2
        assert cluster.kubectl("logs", "wants-gpus").strip() == ",".join(gpus.allocated[0])
    finally:
        gpus.stop()
        cluster.kubectl("delete", "pod", "wants-gpus", "--ignore-not-found", "--grace-period=0", "--force")


def test_a_pod_reaches_the_api_server_by_its_service_name(cluster: Cluster) -> None:
    # Plain HTTP to its TLS port: the answer is a refusal in words, which only the API server gives.
    cluster.apply(pod("asks", "wget -O - http://kubernetes.default.svc:443/ 2>&1 | grep 'HTTP/1.0 400'"))
    try:
        poll("the pod ends", lambda: cluster.get("pod", "asks")["status"]["phase"] in ("Succeeded", "Failed"), 60)
        assert cluster.get("pod", "asks")["status"]["phase"] == "Succeeded", cluster.kubectl("logs", "asks")
    finally:
        cluster.kubectl("delete", "pod", "asks", "--ignore-not-found", "--grace-period=0", "--force")


def allocatable(cluster: Cluster, node: str, resource: str) -> str | None:
    """How much of a resource a node offers."""
    answer: str | None = cluster.get("node", node)["status"]["allocatable"].get(resource)
    return answer


def pod(name: str, script: str, limits: dict[str, str] | None = None) -> dict[str, object]:
    """A pod that runs a shell script once."""
    container = {
        "name": "c",
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "imagePullPolicy": "Never",
        "resources": {"limits": limits or {}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
