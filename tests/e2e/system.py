"""The system under test: a real cluster with simulated GPUs, our images in it, and the chart installed."""

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.binaries import REPOSITORY
from tests.cluster.cluster import Cluster
from tests.cluster.device_plugin import SimulatedGpus
from tests.cluster.own_images import HETCCL_IMAGE, OPERATOR_IMAGE, Builder
from tests.cluster.processes import poll
from tests.cluster.user_images import amd_user_image, nvidia_user_image

NAMESPACE = "hettrain-system"
OPERATOR_NODE = "node1"
RELEASE = "hettrain"
GPUS = {"nvidia.com/gpu": ("node1", 4), "amd.com/gpu": ("node2", 2)}
"""Extended resource -> node and number of its (simulated) devices."""

Identity = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True)
class System:
    """A cluster that runs HetTrainingJobs. `gpus`: device plug-ins by resource; `pristine`: what was there before."""

    cluster: Cluster
    gpus: dict[str, SimulatedGpus]
    pristine: set[Identity]

    def install(self) -> None:
        """Install the chart and wait until the operator is ready."""
        self._helm(
            *("install", RELEASE, REPOSITORY / "charts" / "hettrain", "--wait", "--timeout", "2m"),
            *("--create-namespace", "--set", f"image.repository={repository(OPERATOR_IMAGE)}"),
            *("--set", "image.tag=test", "--set", f"hetccl.image.repository={repository(HETCCL_IMAGE)}"),
            *("--set", "hetccl.image.tag=test", "--set", f"nodeSelector.kubernetes\\.io/hostname={OPERATOR_NODE}"),
        )

    def upgrade(self, *values: str) -> None:
        """Upgrade the release to other values, and wait until the new operator is ready."""
        settings = (part for value in values for part in ("--set", value))
        chart = REPOSITORY / "charts" / "hettrain"
        self._helm("upgrade", RELEASE, chart, "--reuse-values", "--wait", "--timeout", "2m", *settings)

    def uninstall(self) -> None:
        """Delete the release and the namespace that it was installed in."""
        self._helm("uninstall", RELEASE, "--wait", "--timeout", "1m")
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s")

    def _helm(self, *arguments: object) -> None:
        command = [self.cluster.binaries / "helm", "--kubeconfig", self.cluster.kubeconfig, "--namespace", NAMESPACE]
        done = subprocess.run(
            [str(part) for part in (*command, *arguments)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"helm {arguments[0]}: {done.stderr.strip()}\n{self.operator_log()}")

    def operator_log(self) -> str:
        """What the operator's pods said last."""
        try:
            return self.cluster.kubectl(
                "logs", "--namespace", NAMESPACE, f"deployment/{RELEASE}", "--all-pods", "--tail=40"
            )
        except RuntimeError as error:
            return str(error)

    def operator_pods(self) -> list[dict[str, Any]]:
        """The operator's pods."""
        selector = "app.kubernetes.io/name=hettrain"
        pods: list[dict[str, Any]] = self.cluster.get("pods", "--namespace", NAMESPACE, "--selector", selector)["items"]
        return pods


def repository(reference: str) -> str:
    """A reference without its tag."""
    return reference.rpartition(":")[0]


def everything(cluster: Cluster) -> set[Identity]:
    """Every object of every kind that can be listed, but Events, which the API server forgets by itself."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    listed = [kind for kind in kinds if kind not in ("events", "events.events.k8s.io", "componentstatuses")]
    columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
    lines = cluster.kubectl(
        *("get", ",".join(listed), "--all-namespaces", "--no-headers", "--output", columns, "--ignore-not-found")
    ).splitlines()
    return {(fields[0], fields[1], fields[2]) for fields in map(str.split, lines)}


@contextlib.contextmanager
def simulated_gpus(cluster: Cluster) -> Iterator[dict[str, SimulatedGpus]]:
    """Device plug-ins registered with the nodes' kubelets, their devices allocatable."""
    with contextlib.ExitStack() as stack:
        plugins = {}
        for resource, (node, count) in GPUS.items():
            plugin = SimulatedGpus(cluster.nodes[node].device_plugins, resource, count)
            plugin.start()
            stack.callback(plugin.stop)
            plugins[resource] = plugin
        for resource, (node, count) in GPUS.items():

            def offered(resource: str = resource, node: str = node, count: int = count) -> bool:
                return bool(cluster.get("node", node)["status"]["allocatable"].get(resource) == str(count))

            poll(f"{node} offers {count} {resource}", offered, 60, interval=0.5)
        yield plugins


def import_images(cluster: Cluster) -> None:
    """Make all images and import each where pods will need it, several at a time."""
    builder = Builder()
    own = cluster.directory / "images"
    own.mkdir()

    def our_images() -> None:
        hetccl = builder.hetccl_image(own / "hetccl.tar")
        for node in cluster.nodes.values():
            node.import_image(hetccl)
        cluster.nodes[OPERATOR_NODE].import_image(builder.operator_image(own / "operator.tar"))

    tasks: list[Callable[[], None]] = [
        our_images,
        lambda: cluster.nodes["node1"].import_image(nvidia_user_image()),
        lambda: cluster.nodes["node2"].import_image(amd_user_image()),
    ]
    with ThreadPoolExecutor(len(tasks)) as threads:
        for done in [threads.submit(task) for task in tasks]:
            done.result()


@contextlib.contextmanager
def running_system(cluster: Cluster) -> Iterator[System]:
    """The whole system; raises Unavailable where it cannot be made here."""
    import_images(cluster)
    with simulated_gpus(cluster) as gpus:
        system = System(cluster, gpus, everything(cluster))
        system.install()
        yield system


def write_logs(cluster: Cluster, namespace: str) -> Path:
    """A new folder with the log of every pod that ran a rank, as compare.py reads them."""
    folder = Path(tempfile.mkdtemp(dir=cluster.directory))
    for pod in cluster.get("pods", "--namespace", namespace)["items"]:
        name = pod["metadata"]["name"]
        (folder / f"{name}.log").write_text(cluster.kubectl("logs", "--namespace", namespace, name))
    return folder
