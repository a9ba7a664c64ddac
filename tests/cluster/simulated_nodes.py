"""Nodes simulated by kwok: pods bound to them turn Running, and Complete by annotation, with no container."""

from pathlib import Path

from tests.cluster.processes import Processes, free_ports

VENDORS = ("nvidia", "amd")


def start_kwok(processes: Processes, binaries: Path, kubeconfig: Path) -> None:
    """Start the program that plays the kubelets of simulated nodes."""
    processes.start(
        *("kwok", binaries / "kwok", "--kubeconfig", kubeconfig, "--manage-all-nodes=false"),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        *("--config", binaries / "kwok-stages.yaml", f"--server-address=127.0.0.1:{free_ports(1)[0]}"),
    )


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
