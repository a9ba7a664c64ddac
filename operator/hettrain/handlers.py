"""kopf: what the watches see goes into the store, and the job that it concerns into the queue.

Only index and event handlers: anything else makes kopf put finalizers or annotations on objects. The index handlers
are what makes kopf hold every event back until all kinds are listed; the store is filled by then.
"""

from collections.abc import Callable, Mapping
from typing import Any

import kopf

from hettrain.api.job import GROUP, PLURAL, VERSION
from hettrain.api.profile import PLURAL as PROFILES
from hettrain.kube import login
from hettrain.plan.names import JOB_LABEL
from hettrain.store import Store

__all__ = ["make_registry", "make_settings"]

CHILDREN = {"pods": "Pod", "services": "Service"}


class _NoDiffs(kopf.DiffBaseStorage):
    """We compare nothing with what was there before, and to copy each object for it is most of kopf's work."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


def make_settings() -> kopf.OperatorSettings:
    """kopf without events, peering or scanning: it watches what it is told to and writes nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    for plural in CHILDREN:
        settings.watching.label_selectors[plural] = JOB_LABEL
    return settings


def make_registry(store: Store, wake: Callable[[str], None], *, profiles: bool) -> kopf.OperatorRegistry:
    """The handlers. `profiles`: whether HetPoolProfiles, which are cluster-wide, may be watched."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo:
        return login()

    @kopf.index(GROUP, VERSION, PLURAL, registry=registry, id="jobs")
    def put_job(body: Mapping[str, Any], **_: Any) -> None:
        store.put_job(dict(body))

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    def job_changed(event: Mapping[str, Any], uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            store.drop_job(uid)
        wake(uid)

    for plural, kind in CHILDREN.items():
        _watch_children(registry, store, wake, plural, kind)
    if profiles:
        _watch_profiles(registry, store, wake)
    return registry


def _watch_children(
    registry: kopf.OperatorRegistry, store: Store, wake: Callable[[str], None], plural: str, kind: str
) -> None:
    labels = {JOB_LABEL: kopf.PRESENT}

    @kopf.index(plural, labels=labels, registry=registry, id=plural)
    def put(body: Mapping[str, Any], **_: Any) -> None:
        store.put_child(kind, dict(body))

    @kopf.on.event(plural, labels=labels, registry=registry, id=plural)
    def changed(event: Mapping[str, Any], uid: str, body: Mapping[str, Any], **_: Any) -> None:
        owner = store.drop_child(uid) if event["type"] == "DELETED" else store.put_child(kind, dict(body))
        if owner is not None:
            wake(owner)


def _watch_profiles(registry: kopf.OperatorRegistry, store: Store, wake: Callable[[str], None]) -> None:
    @kopf.index(GROUP, VERSION, PROFILES, registry=registry, id="profiles")
    def put(body: Mapping[str, Any], **_: Any) -> None:
        store.put_profile(dict(body))

    @kopf.on.event(GROUP, VERSION, PROFILES, registry=registry)
    def changed(event: Mapping[str, Any], name: str, body: Mapping[str, Any], **_: Any) -> None:
        if event["type"] == "DELETED":
            store.profiles.pop(name, None)
        else:
            store.put_profile(dict(body))
        for uid, job in store.jobs.items():
            if any(pool.get("profile") == name for pool in job["spec"]["pools"]):
                wake(uid)
