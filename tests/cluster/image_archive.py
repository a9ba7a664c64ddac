"""Container images as files: a docker-archive made of layer tars, without a builder and without a registry."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Image:
    """A reference and what a container of it finds in its environment."""

    reference: str
    env: Mapping[str, str] = field(default_factory=dict)


def write_layer(out: Path, files: Mapping[str, str | Path]) -> None:
    """Write a layer tar: absolute target path -> text of an executable file, or a file to copy."""
    with tarfile.open(out, "w") as layer:
        for target, content in files.items():
            if isinstance(content, Path):
                layer.add(content, target.lstrip("/"))
                continue
            entry = tarfile.TarInfo(target.lstrip("/"))
            entry.size, entry.mode = len(content.encode()), 0o755
            layer.addfile(entry, io.BytesIO(content.encode()))


def write_archive(out: Path, layers: Iterable[Path], images: Iterable[Image]) -> None:
    """Write an archive that holds several images of the same layers, lowest layer first."""
    digests = {layer: _digest(layer) for layer in layers}
    manifest, configs = [], {}
    for image in images:
        environment = [f"{name}={value}" for name, value in {"PATH": PATH, **image.env}.items()]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": environment, "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests.values()]},
            "history": [{"created_by": "hettrain's tests"} for _ in digests],
        }
        blob = json.dumps(config).encode()
        name = f"{hashlib.sha256(blob).hexdigest()}.json"
        configs[name] = blob
        names = [f"{digest}.tar" for digest in digests.values()]
        manifest.append({"Config": name, "RepoTags": [image.reference], "Layers": names})
    with tarfile.open(out, "w") as archive:
        for layer, digest in digests.items():
            archive.add(layer, f"{digest}.tar")
        for name, blob in {**configs, "manifest.json": json.dumps(manifest).encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(blob)
            archive.addfile(entry, io.BytesIO(blob))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
