"""Keeps the webhook's certificate in a Secret that all replicas share, and the API server's trust in it, in order."""

import asyncio
import base64
import binascii
import logging
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hettrain.admission.certificates import Pair, is_usable, make, merge_bundle
from hettrain.kube import ApiError, Kube, Unreachable

__all__ = ["Names", "Rotation"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True)
class Names:
    """What there is of the webhook in the cluster: a Secret and a configuration; `host` is what it is called by."""

    namespace: str
    secret: str
    configuration: str
    host: str


class Rotation:
    """`context` serves the newest certificate; `ready` is set once there is one."""

    def __init__(self, kube: Kube, names: Names) -> None:
        self._kube, self._names = kube, names
        self._loaded = b""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Look again and again; never returns."""
        while True:
            try:
                await self.look()
            except (ApiError, Unreachable) as error:
                # 409: another replica was faster; its certificate is read in the next turn.
                log.log(logging.DEBUG if getattr(error, "status", 0) == 409 else logging.WARNING, "%s", error)
            await asyncio.sleep(LOOK_SECONDS if self.ready.is_set() else 1.0)

    async def look(self) -> None:
        """Trust comes first: a certificate is served only after the API server was told to trust it."""
        secret = await self._kube.get("Secret", self._names.namespace, self._names.secret)
        pair, bundle = _read(secret)
        now = datetime.now(UTC)
        if not is_usable(pair, self._names.host, now):
            pair = make(self._names.host, now)
            bundle = merge_bundle(pair.certificate, bundle, now)
            secret["data"] = {
                CERTIFICATE: _encode(pair.certificate),
                KEY: _encode(pair.key),
                BUNDLE: _encode(bundle),
            }
            await self._kube.replace(secret)
            log.info("made a new certificate for %s", self._names.host)
        await self._trust(merge_bundle(pair.certificate, bundle, now))
        if pair.certificate != self._loaded:
            self._load(pair)

    async def _trust(self, bundle: bytes) -> None:
        configuration = await self._kube.get("ValidatingWebhookConfiguration", None, self._names.configuration)
        wanted = _encode(bundle)
        stale = [hook for hook in configuration["webhooks"] if hook["clientConfig"].get("caBundle") != wanted]
        for hook in stale:
            hook["clientConfig"]["caBundle"] = wanted
        if stale:
            await self._kube.replace(configuration)
            log.info("%s trusts the present certificate now", self._names.configuration)

    def _load(self, pair: Pair) -> None:
        # Connections that are open keep the old one; those to come get this.
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, CERTIFICATE), Path(folder, KEY)
            certificate.write_bytes(pair.certificate)
            key.touch(0o600)
            key.write_bytes(pair.key)
            self.context.load_cert_chain(certificate, key)
        self._loaded = pair.certificate
        self.ready.set()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _read(secret: dict[str, Any]) -> tuple[Pair, bytes]:
    def entry(name: str) -> bytes:
        try:
            return base64.b64decode((secret.get("data") or {}).get(name, ""))
        except binascii.Error:
            return b""

    return Pair(entry(CERTIFICATE), entry(KEY)), entry(BUNDLE)
