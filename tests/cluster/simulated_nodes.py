"""Nodes simulated by kwok: pods bound to them turn Running, and Complete by annotation, with no container."""

from pathlib import Path
from typing import Any

import yaml

from tests.cluster.processes import Processes, free_ports

VENDORS = ("nvidia", "amd")


def start_kwok(processes: Processes, binaries: Path, kubeconfig: Path, *, pods_end: bool = False) -> None:
    """Start the program that plays the kubelets of simulated nodes.

    `pods_end`: a deleted pod fails before it goes, as under a kubelet; what holds it by a finalizer sees that.
    """
    stages = binaries / "kwok-stages.yaml"
    if pods_end:
        changed = kubeconfig.parent / "kwok-stages.yaml"
        changed.write_text(yaml.safe_dump_all(_ending(list(yaml.safe_load_all(stages.read_text())))))
        stages = changed
    processes.start(
        *("kwok", binaries / "kwok", "--kubeconfig", kubeconfig, "--manage-all-nodes=false"),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        *("--config", stages, f"--server-address=127.0.0.1:{free_ports(1)[0]}"),
    )


def _ending(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    gone = next(stage for stage in stages if stage["metadata"]["name"] == "pod-delete")
    asked = gone["spec"]["selector"]["matchExpressions"]
    ended = {
        "apiVersion": gone["apiVersion"],
        "kind": gone["kind"],
        "metadata": {"name": "pod-ended"},
        "spec": {
            "resourceRef": gone["spec"]["resourceRef"],
            "selector": {
                "matchExpressions": [*asked, {"key": ".status.phase", "operator": "In", "values": ["Running"]}]
            },
            "next": {"statusTemplate": "phase: Failed"},
        },
    }
    running = {"key": ".status.phase", "operator": "NotIn", "values": ["Running"]}
    gone["spec"]["selector"]["matchExpressions"] = [*asked, running]
    return [*stages, ended]


def simulated_node(index: int) -> dict[str, object]:
    """Node kwok-INDEX with 8 GPUs; even ones are NVIDIA's, odd ones AMD's. Pods must tolerate its taint."""
    vendor = VENDORS[index % len(VENDORS)]
    resources = {
        "cpu": "256",
        "memory": "2Ti",
        "pods": "200",
        f"{vendor}.com/gpu": "8",
        "rdma/hca_shared_devices_a": "8",
    }
    labels = {"type": "kwok", "kubernetes.io/hostname": f"kwok-{index}", "hetccl.io/vendor": vendor}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"kwok-{index}", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }
