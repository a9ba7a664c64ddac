"""hetccl into a pod that we do not own: the tree is mounted and the command finds it. Nothing else changes."""

from typing import Any, Literal

__all__ = ["Delivery", "inject"]

Delivery = Literal["ImageVolume", "InitContainer", "Host"]
"""`Host`: the tree is there already, at the path that the trainer sees."""

VOLUME = "hetccl"


def inject(pod: dict[str, Any], trainer: dict[str, Any], delivery: Delivery, image: str, home: str) -> list[str]:
    """Change `pod` (a PodSpec) and `trainer` (one of its containers) so that the trainer finds the tree at `home`.

    Returns warnings for the user.
    """
    if delivery != "Host":
        _mount(pod, trainer, delivery, image, home)
    if trainer.get("command"):
        # The image may have an ENV PYTHONPATH that we cannot see: only at run time can it be kept.
        trainer["command"] = [f"{home}/bootstrap/launch", *trainer["command"]]
        return []
    return _extend_python_path(trainer, f"{home}/bootstrap")


def _mount(pod: dict[str, Any], trainer: dict[str, Any], delivery: Delivery, image: str, home: str) -> None:
    mount = {"name": VOLUME, "mountPath": home, "readOnly": True}
    if delivery == "ImageVolume":
        volume = {"name": VOLUME, "image": {"reference": image, "pullPolicy": "IfNotPresent"}}
    else:
        volume = {"name": VOLUME, "emptyDir": {}}
        pod.setdefault("initContainers", []).insert(0, _copier(image, home))
    pod.setdefault("volumes", []).append(volume)
    trainer.setdefault("volumeMounts", []).append(mount)


def _copier(image: str, home: str) -> dict[str, Any]:
    """The hetccl image's own entry point copies the tree to where it is told."""
    return {
        "name": VOLUME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [home],
        "volumeMounts": [{"name": VOLUME, "mountPath": home}],
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
