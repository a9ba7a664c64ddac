"""Where the Kubernetes programs are: $KUBEBUILDER_ASSETS, else an archive beside the repository, unpacked once."""

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "v1.37.2"
REPOSITORY = Path(__file__).resolve().parents[2]
ARCHIVE = REPOSITORY.parent / "shared" / "kubernetes"


class Unavailable(Exception):
    """A real Kubernetes cannot be started here; the message names what is missing and how to get it."""


def cache() -> Path:
    """The folder that keeps what is expensive to make between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hettrain"


def require_programs(*programs: str) -> None:
    """Raise Unavailable where a program is not on the PATH."""
    if missing := [program for program in programs if not shutil.which(program)]:
        raise Unavailable(f"programs not found: {', '.join(missing)} (tests/cluster/install-packages installs them)")


def find_binaries() -> Path:
    """The folder that holds etcd, kube-apiserver and the rest; raises Unavailable where there is none."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        if not (Path(assets) / "kube-apiserver").exists():
            raise Unavailable(f"$KUBEBUILDER_ASSETS is {assets}, and no kube-apiserver lies there")
        return Path(assets)
    target = cache() / f"kubernetes-{VERSION}"
    if not target.exists():
        unpack(target)
    return target


def unpack(target: Path) -> None:
    """Unpack the archive's parts into target, all or nothing."""
    parts = sorted(ARCHIVE.glob(f"kubernetes-{VERSION}-linux-amd64.tar.zst.*.part"))
    if not parts:
        raise Unavailable(
            f"no Kubernetes: $KUBEBUILDER_ASSETS is not set, and there is no archive of {VERSION} in {ARCHIVE}"
        )
    require_programs("zstd", "tar")
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        with subprocess.Popen(["tar", "--zstd", "-x", "-C", partial], stdin=subprocess.PIPE) as tar:
            assert tar.stdin
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, tar.stdin, 1 << 20)
        if tar.returncode:
            raise RuntimeError(f"tar exited with {tar.returncode}: the archive in {ARCHIVE} was not unpacked")
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
