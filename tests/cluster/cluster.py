"""A real Kubernetes on this machine: a control plane, and real nodes, DNS, Services and simulated nodes on request."""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import network
from tests.cluster.binaries import Unavailable, cache, find_binaries, require_programs
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.lock import only_one
from tests.cluster.node import Node
from tests.cluster.pki import Authority
from tests.cluster.processes import Processes, start_ticks
from tests.cluster.simulated_nodes import simulated_node, start_kwok

PREFIX = "hettrain-cluster-"


class KubectlError(RuntimeError):
    """kubectl failed; the message says what it was asked and what it answered."""


class Cluster:
    """A cluster in one directory. `kubeconfig` is the administrator's; `nodes` are the real nodes by name."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.directory, self.binaries = directory, binaries
        self.kubeconfig = directory / "kubeconfig"
        self.processes = Processes(directory, binaries)
        self.authority = Authority(directory / "pki")
        self.control_plane = ControlPlane(directory, binaries, self.processes, self.authority)
        self.nodes: dict[str, Node] = {}

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.control_plane.server

    # -- up and down ---------------------------------------------------------------------------------------------
    def up(self, nodes: int = 0, *, feature_gates: str = "", runtime_config: str = "") -> None:
        """Start the control plane and, as root, so many real nodes with cluster DNS and Services."""
        self.nodes = {name: self._node(name) for name in (f"node{number + 1}" for number in range(nodes))}
        self.claim()
        if nodes:
            network.add_bridge()
        self.control_plane.start(
            Options(with_nodes=nodes > 0, feature_gates=feature_gates, runtime_config=runtime_config)
        )
        if nodes:
            network.start_dns(self.processes, self.binaries, self.directory)
            network.start_proxy(self.processes, self.binaries, self.directory, self.authority, self.server)
        with ThreadPoolExecutor(max(nodes, 1)) as threads:
            list(threads.map(lambda node: node.start(self.authority, self.server), self.nodes.values()))
        for name in self.nodes:
            self.control_plane.await_path(f"kubelet-{name}", f"/api/v1/nodes/{name}", '"reason":"KubeletReady"')

    def _node(self, name: str) -> Node:
        return Node(name, self.directory, self.binaries, self.processes)

    def claim(self) -> None:
        """Leave what a later process needs to tear down a cluster whose owner was killed."""
        owner = {"pid": os.getpid(), "ticks": start_ticks(os.getpid()), "nodes": list(self.nodes)}
        (self.directory / "owner.json").write_text(json.dumps(owner))

    def down(self) -> None:
        """Stop and remove everything; safe to call on a cluster that came up only in part, and twice."""
        for node in self.nodes.values():
            node.stop()
        for name in reversed(self.processes.names()):
            self.processes.stop(name)
        if self.nodes:
            network.remove_bridge()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- what tests ask for --------------------------------------------------------------------------------------
    def kubectl(self, *argv: object, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl as the administrator and return what it printed; KubectlError where it fails."""
        command = [str(part) for part in (self.binaries / "kubectl", "--kubeconfig", self.kubeconfig, *argv)]
        done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False, timeout=timeout)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(command[3:])}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def get(self, *argv: object) -> dict[str, Any]:
        """`kubectl get ... -o json`, parsed."""
        answer: dict[str, Any] = json.loads(self.kubectl("get", *argv, "-o", "json"))
        return answer

    def fetch(self, path: str) -> str:
        """GET of a path of the API server: what kubectl does at a hundred times the cost. HTTPError if it fails."""
        url = self.server + path
        with urllib.request.urlopen(url, context=self.authority.client_context("admin"), timeout=30) as answer:
            text: str = answer.read().decode(errors="replace")
        return text

    def apply(self, *objects: dict[str, Any], namespace: str = "default") -> None:
        """Server-side apply of objects."""
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--namespace", namespace, "-f", "-", stdin=items)

    def add_simulated_nodes(self, count: int) -> None:
        """Nodes kwok-0 ... with 8 GPUs each, NVIDIA's and AMD's in turn (simulated: pods run no container)."""
        if not self.processes.alive("kwok"):
            start_kwok(self.processes, self.binaries, self.kubeconfig)
        self.apply(*(simulated_node(index) for index in range(count)))


def remove_abandoned(parent: Path, binaries: Path) -> None:
    """Tear down the clusters in parent whose owning process is gone."""
    for file in parent.glob(f"{PREFIX}*/owner.json"):
        if file.stat().st_uid != os.getuid():
            continue
        owner = json.loads(file.read_text())
        if start_ticks(owner["pid"]) != owner["ticks"]:
            cluster = Cluster(file.parent, binaries)
            cluster.nodes = {name: cluster._node(name) for name in owner["nodes"]}
            cluster.down()


@contextmanager
def running_cluster(nodes: int = 0, *, feature_gates: str = "", runtime_config: str = "") -> Iterator[Cluster]:
    """A cluster that is torn down in any case; one whose process was killed outright is removed by the next call.

    Raises Unavailable where it cannot be started on this machine.
    """
    binaries = find_binaries()
    require_programs("openssl")
    if nodes:
        if os.geteuid():
            raise Unavailable("real nodes (containerd, kubelet) need root")
        require_programs("ip", "nft")
    parent = Path(tempfile.gettempdir())
    with only_one(cache() / "real-nodes.lock" if nodes else None, timeout=600):
        remove_abandoned(parent, binaries)
        cluster = Cluster(Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)), binaries)
        try:
            cluster.up(nodes, feature_gates=feature_gates, runtime_config=runtime_config)
            yield cluster
        finally:
            cluster.down()
