"""Two images as users have them, without hetccl: different Debian, different Python, different torch.

Each is made once and kept in the cache, under a hash of its recipe. Needs root, Debian's packages and PyPI.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.binaries import cache, require_programs
from tests.cluster.image_archive import Image, write_archive, write_layer
from tests.cluster.lock import only_one

NVIDIA_USER_IMAGE = "registry.local/user-nvidia:1"
AMD_USER_IMAGE = "registry.local/user-amd:1"
PYTHONPATH_IMAGE = "registry.local/user-pythonpath:1"
USERS_FOLDER = "/opt/user/lib"
"""Where PYTHONPATH_IMAGE's own PYTHONPATH points; it holds the module users_own."""

UNUSED = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/lib/libtorch-test/*",
    # Reached through Open MPI's optional ROCm transport only, and a quarter of the image.
    "/usr/lib/*/libLLVM*",
    "/usr/lib/*/libamd_comgr*",
)
UNUSED_OF_TORCH = ("torch/test/", "torch/include/", "torch/bin/")
TORCH_SHM_MANAGER = "torch/bin/torch_shm_manager"
TORCHRUN = "#!/usr/bin/python3\nfrom torch.distributed.run import main\nmain()\n"


@dataclass(frozen=True)
class System:
    """A Debian release with packages and without what UNUSED names. edits: file -> sed expression."""

    suite: str
    packages: tuple[str, ...]
    edits: tuple[tuple[str, str], ...] = ()
    unused: tuple[str, ...] = UNUSED

    def make(self, out: Path) -> None:
        """Write the system as a tar."""
        require_programs("mmdebstrap")
        options = [f"--dpkgopt=path-exclude={pattern}" for pattern in self.unused]
        options += [f"--customize-hook=sed --in-place '{edit}' \"$1\"{file}" for file, edit in self.edits]
        include = f"--include={','.join(self.packages)}"
        run(
            "mmdebstrap",
            "--quiet",
            "--format=tar",
            "--mode=root",
            "--variant=minbase",
            include,
            *options,
            self.suite,
            out,
        )


@dataclass(frozen=True)
class PythonPackages:
    """Packages of PyPI as a Debian system's Python finds them."""

    python: str
    requirements: tuple[str, ...]

    def make(self, out: Path) -> None:
        """Write the packages as a layer tar."""
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
            run(*pip, "--target", folder, "--python-version", self.python, "--only-binary", ":all:", *self.requirements)
            with tarfile.open(out, "w") as layer:
                layer.add(folder, "usr/lib/python3/dist-packages", filter=self._trimmed)

    @staticmethod
    def _trimmed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        path = entry.name.removeprefix("usr/lib/python3/dist-packages/")
        unused = path.startswith(UNUSED_OF_TORCH) and path != TORCH_SHM_MANAGER
        return None if unused else entry


PYTHON_311 = System("bookworm", ("ca-certificates", "python3", "python3-venv"))
"""Also the base that our own images are built on here."""
# Debian builds torch without libuv, which its TCPStore asks for unless told not to: torchrun needs these two edits.
RENDEZVOUS = "/usr/lib/python3/dist-packages/torch/distributed"
TRIXIE_TORCH = System(
    "trixie",
    ("python3-torch",),
    (
        (f"{RENDEZVOUS}/rendezvous.py", "s/is_master=False,/is_master=False, use_libuv=False,/"),
        (
            f"{RENDEZVOUS}/elastic/rendezvous/static_tcp_rendezvous.py",
            "s/multi_tenant=True,/multi_tenant=True, use_libuv=False,/",
        ),
    ),
)
TORCH = PythonPackages("3.11", ("torch==2.13.0",))


def run(*argv: object) -> None:
    """Run a program; RuntimeError with what it said where it fails."""
    done = subprocess.run([str(argument) for argument in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} exited with {done.returncode}: {done.stderr.strip()[-2000:]}")


def cached(name: str, recipe: object, make: Callable[[Path], None]) -> Path:
    """The file that make writes for this recipe: from the cache, or made now. One file a name is kept."""
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{digest}.tar"
    with only_one(folder / f"{name}.lock", timeout=900):
        if not file.exists():
            partial = folder / f"{name}.partial"
            make(partial)
            for old in folder.glob(f"{name}-*.tar"):
                old.unlink()
            partial.rename(file)
    return file


def python_311_system() -> Path:
    """Tar of a small Debian with Python 3.11."""
    return cached("python-3.11", asdict(PYTHON_311), PYTHON_311.make)


def nvidia_user_image() -> Path:
    """Archive of NVIDIA_USER_IMAGE and PYTHONPATH_IMAGE: Debian 12, Python 3.11, torch 2.13 from PyPI, no numpy."""
    own = {f"{USERS_FOLDER}/users_own.py": "HERE = True\n", "/usr/local/bin/torchrun": TORCHRUN}
    images = [Image(reference=NVIDIA_USER_IMAGE), Image(reference=PYTHONPATH_IMAGE, env={"PYTHONPATH": USERS_FOLDER})]

    def make(out: Path) -> None:
        packages = cached("torch-3.11", asdict(TORCH), TORCH.make)
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            top = Path(folder) / "top.tar"
            write_layer(top, own)
            write_archive(out, [python_311_system(), packages, top], images)

    return cached("user-nvidia", [asdict(PYTHON_311), asdict(TORCH), own, [asdict(image) for image in images]], make)


def amd_user_image() -> Path:
    """Archive of AMD_USER_IMAGE: Debian 13, Python 3.13 and Debian's own torch 2.6."""
    image = Image(reference=AMD_USER_IMAGE, env={"USE_LIBUV": "0"})

    def make(out: Path) -> None:
        write_archive(out, [cached("torch-3.13", asdict(TRIXIE_TORCH), TRIXIE_TORCH.make)], [image])

    return cached("user-amd", [asdict(TRIXIE_TORCH), asdict(image)], make)
