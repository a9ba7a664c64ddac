"""The addresses of a cluster: one bridge that all its real nodes share."""

import subprocess
from pathlib import Path

from tests.cluster.pki import Authority
from tests.cluster.processes import Processes, free_ports

BRIDGE = "hetk8s0"
GATEWAY = "10.244.77.1"
POD_CIDR = "10.244.77.0/24"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"


def add_bridge() -> None:
    """Make the bridge that pods and nodes meet on. Needs root."""
    if subprocess.run(["ip", "link", "show", BRIDGE], capture_output=True, check=False).returncode:
        subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
        subprocess.run(["ip", "addr", "add", f"{GATEWAY}/24", "dev", BRIDGE], check=True)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def remove_bridge() -> None:
    """Remove the bridge and what kube-proxy left in the kernel."""
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
    for family in ("ip", "ip6"):
        subprocess.run(["nft", "delete", "table", family, "kube-proxy"], capture_output=True, check=False)


def start_dns(processes: Processes, binaries: Path, directory: Path) -> None:
    """CoreDNS with its kubernetes plugin, on the bridge: headless Services resolve in pods."""
    corefile = directory / "Corefile"
    corefile.write_text(
        f".:53 {{\n  bind {GATEWAY}\n  errors\n  kubernetes cluster.local {{\n"
        f"    kubeconfig {directory}/kubeconfig\n    pods insecure\n    ttl 1\n  }}\n}}\n"
    )
    processes.start("coredns", binaries / "coredns", "-conf", corefile)


def start_proxy(processes: Processes, binaries: Path, directory: Path, authority: Authority, server: str) -> None:
    """kube-proxy (nftables): Services by ClusterIP, the API server's among them."""
    health, metrics = free_ports(2)
    authority.issue("proxy", "/CN=system:kube-proxy")
    kubeconfig = authority.kubeconfig(directory / "proxy.kubeconfig", server, "proxy")
    config = directory / "proxy.yaml"
    config.write_text(
        f"""apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {{kubeconfig: {kubeconfig}}}
hostnameOverride: node1
clusterCIDR: {POD_CIDR}
conntrack: {{maxPerCore: 0, min: 0}}
bindAddress: {GATEWAY}
healthzBindAddress: 127.0.0.1:{health}
metricsBindAddress: 127.0.0.1:{metrics}
"""
    )
    processes.start("proxy", binaries / "kube-proxy", f"--config={config}")
