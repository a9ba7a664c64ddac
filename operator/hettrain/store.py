"""What the operator has seen of jobs and their children: filled by watches and by the answers to its own writes.

An object never goes back: of two versions of it the newer stays (resourceVersions of one kind are ordered).
"""

from collections.abc import Mapping
from typing import Any

from hettrain.api import HetPoolProfile, InvalidDocument, load_profile
from hettrain.api.job import KIND, RESTART_ANNOTATION
from hettrain.gang.kueue import ROLE

__all__ = ["Store", "owner_of"]

Object = Mapping[str, Any]


def owner_of(metadata: Object) -> str | None:
    """The UID of the job that controls an object."""
    for owner in metadata.get("ownerReferences", ()):
        if owner.get("controller") and owner["kind"] == KIND:
            return str(owner["uid"])
    return None


class Store:
    """Jobs, pods and Services by UID, profiles by name."""

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.profiles: dict[str, HetPoolProfile] = {}
        self._children: dict[str, dict[str, Object]] = {}
        self._owners: dict[str, str] = {}

    def put_job(self, job: Object) -> None:
        """A job as the API server has it."""
        metadata = {k: v for k, v in job["metadata"].items() if k != "managedFields"}
        annotations = metadata.pop("annotations", {})
        if RESTART_ANNOTATION in annotations:
            metadata["annotations"] = {RESTART_ANNOTATION: annotations[RESTART_ANNOTATION]}
        slim = {**job, "metadata": metadata}
        uid = metadata["uid"]
        self.jobs[uid] = _newer(self.jobs.get(uid), slim)

    def put_child(self, kind: str, child: Object) -> str | None:
        """A pod or a Service as the API server has it. Returns the UID of its job; None: it is nobody's."""
        metadata = child["metadata"]
        owner = owner_of(metadata)
        if owner is not None:
            children = self._children.setdefault(owner, {})
            children[metadata["uid"]] = _newer(children.get(metadata["uid"]), _slim(kind, child))
            self._owners[metadata["uid"]] = owner
        return owner

    def put_profile(self, profile: Object) -> None:
        """A profile; one that is not valid counts as none."""
        try:
            self.profiles[profile["metadata"]["name"]] = load_profile(profile)
        except InvalidDocument:
            self.profiles.pop(profile["metadata"]["name"], None)

    def drop_job(self, uid: str) -> None:
        """A job that is gone."""
        self.jobs.pop(uid, None)

    def drop_child(self, uid: str) -> str | None:
        """A child that is gone. Returns the UID of its job."""
        owner = self._owners.pop(uid, None)
        if owner is not None:
            children = self._children[owner]
            children.pop(uid, None)
            if not children:
                del self._children[owner]
        return owner

    def children(self, job: str, kind: str) -> list[Object]:
        """The children of a job."""
        return [child for child in self._children.get(job, {}).values() if child["kind"] == kind]

    def versions(self, kind: str) -> dict[str, int]:
        """The resourceVersion of every object of a kind, by UID."""
        if kind == KIND:
            return {uid: _version(job) for uid, job in self.jobs.items()}
        return {
            uid: _version(child)
            for children in self._children.values()
            for uid, child in children.items()
            if child["kind"] == kind
        }


def _slim(kind: str, child: Object) -> Object:
    """A thousand pods are kept in memory: only what is looked at."""
    metadata = child["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp", "deletionGracePeriodSeconds")
    slim: dict[str, Any] = {"kind": kind, "metadata": {key: metadata[key] for key in kept if key in metadata}}
    if kind == "Pod":
        names = [{"name": container["name"]} for container in child["spec"]["containers"]]
        gates = child["spec"].get("schedulingGates", [])
        slim["spec"] = {
            "nodeName": child["spec"].get("nodeName", ""),
            "containers": names,
            **({"schedulingGates": gates} if gates else {}),
        }
        if ROLE in metadata.get("annotations", {}):
            slim["metadata"]["annotations"] = {ROLE: metadata["annotations"][ROLE]}
        status = child.get("status", {})
        looked_at = ("phase", "reason", "message", "podIP", "conditions", "containerStatuses", "initContainerStatuses")
        slim["status"] = {key: status[key] for key in looked_at if key in status}
    return slim


def _newer(old: Object | None, new: Object) -> Object:
    return new if old is None or _version(new) >= _version(old) else old


def _version(item: Object) -> int:
    return int(item["metadata"].get("resourceVersion") or 0)
