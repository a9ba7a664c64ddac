"""What the cluster can do, found out by asking it to do so without doing it."""

import logging

from hettrain.inject import Delivery
from hettrain.kube import ApiError, Kube

__all__ = ["best_delivery"]

log = logging.getLogger(__name__)


async def best_delivery(kube: Kube, namespace: str) -> Delivery:
    """ImageVolume where a pod that is only tried keeps its image volume: an older API server drops the field."""
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "hettrain-probe-", "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "probe", "image": "probe", "securityContext": restricted}],
            "volumes": [{"name": "tree", "image": {"reference": "probe"}}],
        },
    }
    try:
        tried = await kube.create(pod, dry_run=True)
    except ApiError as error:
        log.warning("whether pods may have image volumes was not found out, so init containers are used: %s", error)
        return "InitContainer"
    kept = any("image" in volume for volume in tried["spec"].get("volumes", ()))
    return "ImageVolume" if kept else "InitContainer"
