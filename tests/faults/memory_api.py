"""An API server in memory, as far as the operator uses one, in which writes go wrong on demand."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

from hettrain.api.job import KIND
from hettrain.kube import ApiError, kind_of

__all__ = ["Crash", "MemoryApi"]

Object = dict[str, Any]


class Crash(BaseException):
    """The operator dies: no `except Exception` of its own may see that."""


class MemoryApi:
    """Stands for `hettrain.kube.Kube`. `before` and `after` are called with the number of each write and may raise."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[str] = []
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None
        self._versions = itertools.count(1)

    def put(self, manifest: Object) -> Object:
        """What anybody else writes."""
        metadata = manifest["metadata"]
        metadata.setdefault("uid", f"uid-{next(self._versions)}")
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[kind_of(manifest), metadata["name"]] = manifest
        return copy.deepcopy(manifest)

    def list(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [copy.deepcopy(found) for (of_kind, _), found in self.objects.items() if of_kind == kind]

    async def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """hettrain.kube.Kube.get."""
        return copy.deepcopy(self._find(kind, name))

    async def create(self, manifest: Object, dry_run: bool = False) -> Object:
        """hettrain.kube.Kube.create."""
        assert not dry_run
        kind, name = kind_of(manifest), manifest["metadata"]["name"]
        number = self._begin(f"create {kind} {name}")
        if (kind, name) in self.objects:
            raise ApiError(409, {"reason": "AlreadyExists"})
        status = {"status": {"phase": "Pending"}} if kind == "Pod" else {}
        created = self.put(copy.deepcopy(manifest) | status)
        self.after(number)
        return created

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        """hettrain.kube.Kube.delete; pods go at once."""
        number = self._begin(f"delete {kind} {name}")
        found = self._find(kind, name)
        if uid is not None and found["metadata"]["uid"] != uid:
            raise ApiError(409, {"reason": "Conflict"})
        del self.objects[kind, name]
        self.after(number)

    async def apply_status(self, manifest: Object) -> Object:
        """hettrain.kube.Kube.apply_status."""
        name = manifest["metadata"]["name"]
        number = self._begin(f"status {name}")
        found = self._find(KIND, name)
        if any(found["metadata"][key] != manifest["metadata"][key] for key in ("uid", "resourceVersion")):
            raise ApiError(409, {"reason": "Conflict"})
        written = self.put({**found, "status": copy.deepcopy(manifest["status"])})
        self.after(number)
        return written

    def _begin(self, write: str) -> int:
        self.writes.append(write)
        self.before(len(self.writes) - 1)
        return len(self.writes) - 1

    def _find(self, kind: str, name: str) -> Object:
        if (kind, name) not in self.objects:
            raise ApiError(404, {"reason": "NotFound"})
        return self.objects[kind, name]
