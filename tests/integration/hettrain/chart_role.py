"""The operator's rights, and no more: what the chart grants to its service account."""

import subprocess
from pathlib import Path

import yaml

from tests.cluster.binaries import REPOSITORY
from tests.cluster.cluster import Cluster

__all__ = ["NAMESPACE", "chart_kubeconfig"]

NAMESPACE, ACCOUNT = "hettrain-system", "hettrain"
KINDS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Lease", "ServiceAccount")


def chart_kubeconfig(cluster: Cluster) -> Path:
    """Install the chart's roles and return a kubeconfig of who has them: leases of the namespace NAMESPACE only."""
    arguments = ("template", ACCOUNT, REPOSITORY / "charts" / "hettrain", "--namespace", NAMESPACE)
    chart = subprocess.run([cluster.binaries / "helm", *arguments], text=True, capture_output=True, check=True).stdout
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    roles = [each for each in yaml.safe_load_all(chart) if each and each["kind"] in KINDS]
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all([namespace, *roles]))
    # A client certificate of the name that a service account's token has: RBAC goes by that.
    (account,) = (each["metadata"]["name"] for each in roles if each["kind"] == "ServiceAccount")
    cluster.authority.issue("operator", f"/CN=system:serviceaccount:{NAMESPACE}:{account}")
    return cluster.authority.kubeconfig(cluster.directory / "operator.kubeconfig", cluster.server, "operator")
