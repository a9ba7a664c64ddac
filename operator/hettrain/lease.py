"""Which operator acts: the one that holds a Lease. It alone writes, and its process ends when it no longer holds it."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from hettrain.kube import ApiError, Kube, Unreachable

__all__ = ["Lease", "LeaseLost"]

log = logging.getLogger(__name__)

DURATION = 10
"""Seconds without renewal after which another may take the Lease."""

RENEW_SECONDS = 2.0
GIVE_UP_SECONDS = 7.0
"""How long the holder goes on without being able to renew: well before another may take over."""

POLL_SECONDS = 1.0


class LeaseLost(Exception):
    """Another holds the Lease, or it could not be renewed in time."""


class Lease:
    """A Lease by name. Ages are measured by this machine's clock only, so that clocks may differ."""

    def __init__(self, kube: Kube, namespace: str, name: str, identity: str) -> None:
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self._seen: tuple[str, float] = ("", 0.0)

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        said = ""
        while True:
            try:
                lease = await self._read()
                holder = (lease.get("spec") or {}).get("holderIdentity") or ""
                if self._free(lease, holder):
                    await self._take(lease, holder)
                    log.info("%s holds the Lease %s/%s", self._identity, self._namespace, self._name)
                    return
                if holder != said:
                    said = holder
                    log.info("standing by: %s holds the Lease %s/%s", holder, self._namespace, self._name)
            except ApiError as error:
                if error.status != 409:  # 409: somebody was faster
                    log.warning("the Lease %s/%s: %s", self._namespace, self._name, error)
            except Unreachable as error:
                log.warning("%s", error)
            await asyncio.sleep(POLL_SECONDS)

    async def hold(self) -> None:
        """Renew for as long as it works. Raises LeaseLost."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                async with asyncio.timeout(GIVE_UP_SECONDS - (time.monotonic() - renewed)):
                    lease = await self._read()
                    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
                    if holder != self._identity:
                        raise LeaseLost(f"the Lease {self._namespace}/{self._name} is held by {holder or 'nobody'} now")
                    await self._take(lease, holder)
                renewed = time.monotonic()
            except (ApiError, Unreachable, TimeoutError) as error:
                age = time.monotonic() - renewed
                log.warning("the Lease was not renewed for %.1f s: %s", age, error or "no answer")
                if age + RENEW_SECONDS >= GIVE_UP_SECONDS:
                    raise LeaseLost(
                        f"the Lease {self._namespace}/{self._name} was not renewed for {age:.0f} s"
                    ) from None

    async def release(self) -> None:
        """Let another take over at once."""
        try:
            lease = await self._read()
            if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._kube.replace(lease)
        except (ApiError, Unreachable) as error:
            log.warning("the Lease was not released: %s", error)

    def _free(self, lease: dict[str, Any], holder: str) -> bool:
        version = lease["metadata"].get("resourceVersion", "")
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        return holder in ("", self._identity) or time.monotonic() - self._seen[1] > DURATION

    async def _read(self) -> dict[str, Any]:
        try:
            return await self._kube.get("Lease", self._namespace, self._name)
        except ApiError as error:
            if error.status != 404:
                raise
        metadata = {"name": self._name, "namespace": self._namespace}
        return await self._kube.create(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        )

    async def _take(self, lease: dict[str, Any], holder: str) -> None:
        """Write our name; that nobody wrote in between is what the resourceVersion is for."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {**(lease.get("spec") or {}), "holderIdentity": self._identity, "leaseDurationSeconds": DURATION}
        spec["renewTime"] = now
        if holder != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        await self._kube.replace({**lease, "spec": spec})
