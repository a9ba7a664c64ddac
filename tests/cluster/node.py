"""A real node: containerd, runc and a kubelet under a name of its own. Needs root.

Each node has a mount namespace of its own: the places that a kubelet and a container runtime take for granted, such as
the folder of device plug-ins, are then the node's, and every mount is gone when the node is.
"""

import json
import os
import subprocess
from pathlib import Path

from tests.cluster.network import BRIDGE, GATEWAY, POD_CIDR
from tests.cluster.pki import Authority
from tests.cluster.processes import Processes, StartError, free_ports, poll

OWN_FOLDERS = {
    "/var/lib/kubelet": "kubelet",
    "/var/log/containers": "container-logs",
    "/var/log/pods": "pod-logs",
    "/var/lib/cni": "cni-state",
    "/run/containerd": "run",
    "/run/netns": "netns",
}
"""Paths inside the node's mount namespace -> folders of the node's home."""
ENTER = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 1; shift 2; done; shift; exec "$@"'
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_V1_CONTROLLERS = (
    "cpu cpuacct cpuset memory pids devices freezer blkio systemd hugetlb perf_event net_cls net_prio"
)


class Node:
    """Node NAME of a cluster, with everything it writes in DIR/NAME."""

    def __init__(self, name: str, directory: Path, binaries: Path, processes: Processes) -> None:
        self.name, self.home, self.binaries, self.processes = name, directory / name, binaries, processes
        self.socket = self.home / "containerd.sock"

    @property
    def device_plugins(self) -> Path:
        """The folder in which device plug-ins register with this node's kubelet."""
        return self.home / "kubelet" / "device-plugins"

    def start(self, authority: Authority, server: str) -> None:
        """Start containerd and the kubelet, which registers the node; does not wait until it is ready."""
        for folder in ("cni", "root", "state", *OWN_FOLDERS.values()):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        authority.issue(self.name, f"/O=system:nodes/CN=system:node:{self.name}", f"DNS:{self.name},IP:{GATEWAY}")
        (self.home / "cni" / "10-bridge.conflist").write_text(json.dumps(self._network()))
        (self.home / "containerd.toml").write_text(self._containerd_config())
        (self.home / "kubelet.json").write_text(json.dumps(self._kubelet_config(authority)))
        self._make_cgroup()
        binds = [str(part) for path, folder in OWN_FOLDERS.items() for part in (self.home / folder, path)]
        for path in OWN_FOLDERS:
            Path(path).mkdir(parents=True, exist_ok=True)
        self.processes.start(
            *(f"containerd-{self.name}", "unshare", "--mount", "sh", "-c", ENTER, "sh", *binds, "--"),
            *(self.binaries / "containerd", "-c", self.home / "containerd.toml"),
        )
        self._await_containerd()
        for archive in sorted((self.binaries / "images").glob("*.tar")):
            self.import_image(archive)
        self.processes.start(
            f"kubelet-{self.name}",
            "nsenter",
            f"--mount=/proc/{self.processes.pid(f'containerd-{self.name}')}/ns/mnt",
            self.binaries / "kubelet",
            f"--config={self.home}/kubelet.json",
            f"--kubeconfig={authority.kubeconfig(self.home / 'kubeconfig', server, self.name)}",
            f"--hostname-override={self.name}",
            f"--cert-dir={self.home}/certs",
            f"--node-ip={GATEWAY}",
            env={"AWS_EC2_METADATA_DISABLED": "true"},
        )

    def _await_containerd(self) -> None:
        name = f"containerd-{self.name}"

        def answers() -> bool:
            if not self.processes.alive(name):
                raise TimeoutError(f"{name} ended")
            return self.ctr("version").returncode == 0

        try:
            poll(f"{name} answers", answers, 30, interval=0.1)
        except TimeoutError as error:
            raise StartError(f"{error}\n{self.processes.log_tail(name)}") from None

    def ctr(self, *argv: object) -> subprocess.CompletedProcess[str]:
        """Run containerd's client on this node."""
        command = [self.binaries / "ctr", "-a", self.socket, "-n", "k8s.io", *argv]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)

    def import_image(self, archive: Path) -> None:
        """Import an image archive (docker or OCI layout), so that pods here may name it."""
        done = self.ctr("image", "import", archive)
        if done.returncode:
            raise RuntimeError(f"{self.name}: image {archive} was not imported: {done.stderr.strip()}")

    def stop(self) -> None:
        """Stop the kubelet, every container and containerd, and remove the node's cgroups."""
        self.processes.stop(f"kubelet-{self.name}")
        if self.processes.alive(f"containerd-{self.name}"):
            for task in self.ctr("task", "ls", "-q").stdout.split():
                self.ctr("task", "kill", "-s", "SIGKILL", "-a", task)
                self.ctr("task", "delete", "-f", task)
        self.processes.stop(f"containerd-{self.name}")
        for root in [CGROUPS / self.name, *CGROUPS.glob(f"*/{self.name}")]:
            for folder, _, _ in os.walk(root, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError:  # something still runs in it; an empty cgroup costs nothing
                    continue

    def _make_cgroup(self) -> None:
        if (CGROUPS / "cgroup.controllers").exists():
            return  # cgroup v2: the kubelet makes its own
        for controller in CGROUP_V1_CONTROLLERS.split():
            if (CGROUPS / controller).exists():
                (CGROUPS / controller / self.name).mkdir(exist_ok=True)
        for knob in ("cpuset.cpus", "cpuset.mems"):
            if (CGROUPS / "cpuset" / knob).exists():
                (CGROUPS / "cpuset" / self.name / knob).write_text((CGROUPS / "cpuset" / knob).read_text())

    def _network(self) -> dict[str, object]:
        addresses = {
            "type": "host-local",
            "dataDir": str(self.home.parent / "ipam"),
            "ranges": [[{"subnet": POD_CIDR}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"bridge": BRIDGE, "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": addresses}
        plugins = [{"type": "bridge", **bridge}, {"type": "portmap", "capabilities": {"portMappings": True}}]
        return {"cniVersion": "1.0.0", "name": "het", "plugins": plugins}

    def _containerd_config(self) -> str:
        return f"""version = 3
root = "{self.home}/root"
state = "{self.home}/state"
[grpc]
  address = "{self.socket}"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "registry.local/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{self.binaries}/cni"]
    conf_dir = "{self.home}/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{self.binaries}/runc"
      SystemdCgroup = false
"""

    def _kubelet_config(self, authority: Authority) -> dict[str, object]:
        port, health_port = free_ports(2)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": GATEWAY,
            "port": port,
            "healthzPort": health_port,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "maxPods": 110,
            "syncFrequency": "5s",
            "serializeImagePulls": False,
            "resolvConf": "",
            "clusterDomain": "cluster.local",
            "clusterDNS": [GATEWAY],
            "tlsCertFile": str(authority.folder / f"{self.name}.crt"),
            "tlsPrivateKeyFile": str(authority.folder / f"{self.name}.key"),
            "volumePluginDir": str(self.home / "volume-plugins"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
        }
