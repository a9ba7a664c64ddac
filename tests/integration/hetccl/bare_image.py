"""A user's image without hetccl, as far as one machine has it: a Python of its own that finds torch and no more."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import torch

from tests.integration.hetccl.torch_ranks import ROOT, plain

OURS = ("hetccl", "hettrain", "_editable_impl_hetccl", "__pycache__")


def make_image(folder: Path) -> Path:
    """The Python of a new virtual environment with torch and what it needs, linked from here."""
    venv.create(folder / "venv", symlinks=True)
    links = folder / "packages"
    links.mkdir()
    for found in Path(torch.__file__).parents[1].iterdir():
        if not found.name.startswith(OURS) and found.suffix != ".pth":
            (links / found.name).symlink_to(found)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    (packages / "image.pth").write_text(f"{links}\n")
    return folder / "venv" / "bin" / "python"


def make_tree(folder: Path) -> Path:
    """The hetccl tree as a release would have it: from a wheel, built from a copy of the source and installed."""
    source = folder / "source"
    shutil.copytree(ROOT / "hetccl", source / "hetccl", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copytree(ROOT / "operator", source / "operator", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    # Without optimisation the compiler takes a second instead of sixteen.
    subprocess.run(build, cwd=source, env=plain(CFLAGS="-O0"), check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    installed = folder / "installed"
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", installed, wheel]
    subprocess.run([sys.executable, "-m", *install], check=True, timeout=120)
    inject = [sys.executable, "-m", "hetccl", "inject", folder / "tree"]
    subprocess.run(inject, cwd=folder, env=plain(PYTHONPATH=str(installed)), check=True, timeout=60)
    return folder / "tree"
