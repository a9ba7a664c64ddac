"""`hetccl preflight` before the trainers: in the pool's own image, with the trainer's devices and environment."""

from typing import Any

__all__ = ["PREFLIGHT", "add_preflight", "avoid_nodes"]

PREFLIGHT = "hetccl-preflight"
SHARED = (
    "image",
    "imagePullPolicy",
    "env",
    "envFrom",
    "resources",
    "securityContext",
    "volumeDevices",
    "volumeMounts",
)
"""What of the trainer's container the check needs, to see what the trainer will."""


def add_preflight(spec: dict[str, Any], trainer: dict[str, Any], mode: str, home: str | None) -> None:
    """Append the init container to a PodSpec. `home`: the tree that is mounted; None: the image has hetccl itself."""
    command = [f"{home}/bootstrap/preflight", mode] if home else ["hetccl", "preflight", mode]
    container = {
        "name": PREFLIGHT,
        **{key: trainer[key] for key in SHARED if key in trainer},
        "command": command,
        "terminationMessagePolicy": "File",
    }
    spec.setdefault("initContainers", []).append(container)


def avoid_nodes(spec: dict[str, Any], nodes: list[str]) -> None:
    """Keep a PodSpec off nodes, by name. The terms of a node selector are alternatives: each gets it."""
    if not nodes:
        return
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    for term in required["nodeSelectorTerms"]:
        term["matchFields"] = [
            *term.get("matchFields", []),
            *({"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes),
        ]
