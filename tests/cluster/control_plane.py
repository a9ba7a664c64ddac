"""etcd, API server, controller manager and scheduler, started from nothing in one directory."""

from dataclasses import dataclass
from pathlib import Path

from tests.cluster.network import API_SERVICE_IP, GATEWAY, SERVICE_CIDR
from tests.cluster.pki import Authority
from tests.cluster.processes import Processes, free_ports

API_SERVER_NAMES = ",".join(
    (
        f"IP:127.0.0.1,IP:{GATEWAY},IP:{API_SERVICE_IP},DNS:localhost,DNS:kubernetes,DNS:kubernetes.default",
        "DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local",
    )
)
CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "apiserver-kubelet": "/O=system:masters/CN=apiserver-kubelet",
}
# The test's own load must meet the API server's limits, not the clients'.
CLIENT_RATES = ("--kube-api-qps=500", "--kube-api-burst=1000")


@dataclass(frozen=True, kw_only=True)
class Options:
    """feature_gates and runtime_config as kube-apiserver's flags want them; with_nodes: real nodes will join."""

    with_nodes: bool = False
    feature_gates: str = ""
    runtime_config: str = ""


class ControlPlane:
    """One control plane; `server` is its URL."""

    def __init__(self, directory: Path, binaries: Path, processes: Processes, authority: Authority) -> None:
        self.directory, self.binaries, self.processes, self.authority = directory, binaries, processes, authority
        self.server = ""

    def start(self, options: Options) -> None:
        """Start everything; returns when the API server is ready and the default service account is there."""
        host = GATEWAY if options.with_nodes else "127.0.0.1"
        client_port, peer_port, api_port, manager_port, scheduler_port = free_ports(5)
        etcd = f"http://127.0.0.1:{client_port}"
        self.server = f"https://{host}:{api_port}"
        self.processes.start(
            *("etcd", self.binaries / "etcd", "--data-dir", self.directory / "etcd", "--unsafe-no-fsync"),
            *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer_port}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer_port}"),
            *("--initial-cluster", f"default=http://127.0.0.1:{peer_port}"),
        )
        self.authority.create()
        self.authority.issue("apiserver", "/CN=kube-apiserver", API_SERVER_NAMES)
        for name, subject in CLIENTS.items():
            self.authority.issue(name, subject)
        self.authority.kubeconfig(self.directory / "kubeconfig", self.server, "admin")
        self.processes.await_answer("etcd", f"{etcd}/health", expect="true")
        self._start_api_server(etcd, host, api_port, options)
        gates = [f"--feature-gates={options.feature_gates}"] if options.feature_gates else []
        self._start_client(
            "controller-manager",
            manager_port,
            f"--service-account-private-key-file={self.authority.folder}/sa.key",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials=true",
            *gates,
        )
        self._start_client("scheduler", scheduler_port, *gates)
        self.await_path("controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")

    def _start_api_server(self, etcd: str, host: str, port: int, options: Options) -> None:
        pki = self.authority.folder
        extra = [] if options.with_nodes else ["--endpoint-reconciler-type=none"]
        if options.runtime_config:
            extra.append(f"--runtime-config={options.runtime_config}")
        if options.feature_gates:
            extra.append(f"--feature-gates={options.feature_gates}")
        self.processes.start(
            "apiserver",
            self.binaries / "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--bind-address={host}",
            f"--advertise-address={host}",
            f"--secure-port={port}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--service-account-key-file={pki}/sa.key",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            "--enable-aggregator-routing=true",
            *extra,
        )
        self.await_path("apiserver", "/readyz")

    def _start_client(self, name: str, port: int, *arguments: str) -> None:
        kubeconfig = self.authority.kubeconfig(self.directory / f"{name}.kubeconfig", self.server, name)
        self.processes.start(
            *(name, self.binaries / f"kube-{name}", f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1"),
            *(f"--secure-port={port}", f"--cert-dir={self.directory}/{name}-certs", "--leader-elect=false"),
            *CLIENT_RATES,
            *arguments,
        )

    def await_path(self, name: str, path: str, expect: str = "") -> None:
        """Wait, while program NAME lives, until the API server answers path with a body that contains expect."""
        self.processes.await_answer(name, self.server + path, self.authority.client_context("admin"), expect)
