"""Our own images, built with buildah from the Dockerfiles of this repository. Needs root."""

import subprocess
import tempfile
from pathlib import Path

from tests.cluster.binaries import REPOSITORY, cache, require_programs
from tests.cluster.image_archive import Image, write_archive
from tests.cluster.user_images import python_311_system

OPERATOR_IMAGE = "registry.local/hettrain/operator:test"
HETCCL_IMAGE = "registry.local/hettrain/hetccl:test"
# What this machine's own pip needs to reach its index is lent to the build, and never part of an image.
LENT = ("/etc/ssl/certs", "/etc/pip.conf")


class Builder:
    """Buildah with a store of its own in the cache, so that unchanged layers are not built twice."""

    def __init__(self) -> None:
        require_programs("buildah")
        self._store = ("--root", str(cache() / "buildah"), "--runroot", str(cache() / "buildah-run"))

    def _buildah(self, *argv: object) -> str:
        command = ["buildah", *self._store, *map(str, argv)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
        if done.returncode:
            said = f"{done.stdout[-1000:]}\n{done.stderr[-2000:]}".strip()
            raise RuntimeError(f"buildah {' '.join(map(str, argv))} exited with {done.returncode}:\n{said}")
        return done.stdout

    def base(self) -> str:
        """Reference of a Debian with Python 3.11 in the store."""
        system = python_311_system()
        reference = f"localhost/hettrain/base:{system.stem.rpartition('-')[2]}"
        if reference not in self._buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines():
            with tempfile.TemporaryDirectory() as folder:
                archive = Path(folder) / "base.tar"
                write_archive(archive, [system], [Image(reference=reference)])
                self._buildah("pull", "--quiet", f"docker-archive:{archive}")
        return reference

    def build(self, dockerfile: str, reference: str, out: Path, target: str = "", **arguments: str) -> Path:
        """Build a Dockerfile (up to a stage, where one is given) and write the image as an archive; returns out."""
        lent = [f"--volume={path}:{path}:ro" for path in LENT if Path(path).exists()]
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        stage = [f"--target={target}"] if target else []
        self._buildah(
            *("bud", "--isolation=chroot", "--layers", *lent, *given, *stage),
            *("--file", dockerfile, "--tag", reference, "."),
        )
        out.unlink(missing_ok=True)
        self._buildah("push", "--quiet", reference, f"docker-archive:{out}:{reference}")
        return out

    def operator_image(self, out: Path) -> Path:
        """OPERATOR_IMAGE as an archive."""
        return self.build("operator/Dockerfile", OPERATOR_IMAGE, out, BASE=self.base())

    def hetccl_image(self, out: Path) -> Path:
        """HETCCL_IMAGE as an archive: the stage `tree` of Dockerfile.cuda."""
        base = self.base()
        return self.build("Dockerfile.cuda", HETCCL_IMAGE, out, target="tree", PYTHON=base, BASE=base)
