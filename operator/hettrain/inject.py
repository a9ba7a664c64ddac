"""hetccl into a pod that we do not own: the tree is mounted and the command finds it. Nothing else changes."""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Delivery", "PullPolicy", "Source", "inject"]

Delivery = Literal["ImageVolume", "InitContainer", "Host"]
"""`Host`: the tree is there already, at the path that the trainer sees."""

PullPolicy = Literal["Always", "IfNotPresent", "Never"]

VOLUME = "hetccl"


@dataclass(frozen=True)
class Source:
    """Where the hetccl tree comes from, and the path at which the trainer is to find it."""

    delivery: Delivery
    image: str
    pull_policy: PullPolicy
    home: str


def inject(pod: dict[str, Any], trainer: dict[str, Any], source: Source) -> list[str]:
    """Change `pod` (a PodSpec) and `trainer` (one of its containers) so that hetccl is found.

    Returns warnings for the user.
    """
    if source.delivery != "Host":
        _mount(pod, trainer, source)
    bootstrap = f"{source.home}/bootstrap"
    if trainer.get("command"):
        # The image may have an ENV PYTHONPATH that we cannot see: only at run time can it be kept.
        trainer["command"] = [f"{bootstrap}/launch", *trainer["command"]]
        return []
    return _extend_python_path(trainer, bootstrap)


def _mount(pod: dict[str, Any], trainer: dict[str, Any], source: Source) -> None:
    if source.delivery == "ImageVolume":
        volume = {"name": VOLUME, "image": {"reference": source.image, "pullPolicy": source.pull_policy}}
    else:
        volume = {"name": VOLUME, "emptyDir": {}}
        pod.setdefault("initContainers", []).insert(0, _copier(source))
    pod.setdefault("volumes", []).append(volume)
    mount = {"name": VOLUME, "mountPath": source.home, "readOnly": True}
    trainer.setdefault("volumeMounts", []).append(mount)


def _copier(source: Source) -> dict[str, Any]:
    """The hetccl image's own entry point copies the tree to where it is told."""
    return {
        "name": VOLUME,
        "image": source.image,
        "imagePullPolicy": source.pull_policy,
        "args": [source.home],
        "volumeMounts": [{"name": VOLUME, "mountPath": source.home}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _extend_python_path(trainer: dict[str, Any], folder: str) -> list[str]:
    entries = trainer.setdefault("env", [])
    entry = next((entry for entry in entries if entry["name"] == "PYTHONPATH"), None)
    if entry is None:
        entries.append({"name": "PYTHONPATH", "value": folder})
    elif "valueFrom" in entry:
        return [
            "hetccl is not injected: the trainer's PYTHONPATH comes from valueFrom, which cannot be extended. "
            "Give the template a command, or PYTHONPATH a plain value"
        ]
    else:
        entry["value"] = f"{folder}:{entry['value']}" if entry.get("value") else folder
    return []
