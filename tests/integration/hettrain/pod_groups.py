"""CRDs of the shape that Volcano's and scheduler-plugins' PodGroups have, as far as we use them; not the real ones."""

from typing import Any

__all__ = ["COSCHEDULING", "VOLCANO"]

_INTEGER, _TEXT = {"type": "integer", "format": "int32"}, {"type": "string"}


def _crd(group: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"phase": _TEXT}},
        },
    }
    # scheduler-plugins' group lies in a domain of Kubernetes' own, which wants this note.
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": approved},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


VOLCANO = _crd(
    "scheduling.volcano.sh",
    "v1beta1",
    {"minMember": _INTEGER, "queue": {**_TEXT, "default": "default"}, "priorityClassName": _TEXT},
)
COSCHEDULING = _crd(
    "scheduling.x-k8s.io", "v1alpha1", {"minMember": {**_INTEGER, "minimum": 1}, "scheduleTimeoutSeconds": _INTEGER}
)
