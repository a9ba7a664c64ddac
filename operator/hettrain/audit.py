"""Watches can die quietly, and one that starts over does not tell what was deleted meanwhile. So look, now and then.

What the API server lists is compared with the store. A difference that two looks in a row show is no delay: an object
that is gone is dropped; one that is newer than what the watch has brought means that the watch is dead.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from hettrain.api.job import KIND
from hettrain.kube import ApiError, Kube, Unreachable
from hettrain.plan.names import JOB_LABEL
from hettrain.store import Store, owner_of

__all__ = ["Audit"]

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
SELECTORS = {KIND: "", "Pod": JOB_LABEL, "Service": JOB_LABEL}


class Audit:
    """`dead` says why the watches are not to be trusted; empty while they are."""

    def __init__(self, kube: Kube, store: Store, namespaces: Sequence[str | None], wake: Callable[[str], None]) -> None:
        self._kube, self._store, self._namespaces, self._wake = kube, store, namespaces, wake
        self._ghosts: set[str] = set()
        self._unseen: set[tuple[str, int]] = set()
        self.dead = ""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            try:
                await self.look()
            except (ApiError, Unreachable) as error:
                log.warning("the audit got no answer: %s", error)

    async def look(self) -> None:
        """One look."""
        ghosts: set[str] = set()
        unseen: set[tuple[str, int]] = set()
        for kind, selector in SELECTORS.items():
            listed = {}
            for namespace in self._namespaces:
                for metadata in await self._kube.list_metadata(kind, namespace, selector):
                    if kind == KIND or owner_of(metadata) is not None:
                        listed[metadata["uid"]] = int(metadata["resourceVersion"])
            known = self._store.versions(kind)
            ghosts |= known.keys() - listed.keys()
            unseen |= {(uid, version) for uid, version in listed.items() if known.get(uid, -1) < version}
        for uid in ghosts & self._ghosts:
            log.warning("%s is gone and no watch has told: dropped", uid)
            self._store.drop_job(uid)
            self._wake(self._store.drop_child(uid) or uid)
        stale = unseen & self._unseen
        self.dead = f"watches have not told of {len(stale)} objects for {EVERY_SECONDS:.0f} s" if stale else ""
        if self.dead:
            log.error("%s", self.dead)
        self._ghosts, self._unseen = ghosts, unseen
