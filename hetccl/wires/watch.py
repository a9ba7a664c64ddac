"""The control connections: who is alive, and what they tell of a group that was aborted.

A closed connection is not enough to notice a death (a lost node sends nothing), so each side sends a heartbeat. This is
the reference, and what there is without a C compiler: core/pulse.c does the same without the GIL.
"""

import errno
import logging
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["HEARTBEAT_SECONDS", "LIMIT_SECONDS", "Watch"]

logger = logging.getLogger("hetccl")

HEARTBEAT_SECONDS = 1.0
LIMIT_SECONDS = 10.0
"""A peer that has sent nothing for so long is lost."""

_BEAT, _ABORT = 1, 2
_FRAME = struct.Struct("!BQI")
_LONGEST = 1 << 16


@dataclass(eq=False)
class _Peer:
    key: bytes
    connection: socket.socket
    lost: Callable[[int], None]
    heard: float
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, frame: bytes) -> None:
        """As much as goes without waiting; the rest with the next beat. A broken connection is noticed by reading."""
        with self.sending:
            self.unsent += frame
            try:
                del self.unsent[: self.connection.send(self.unsent)]
            except OSError:
                return


class Watch:
    """One thread for all peers of this process (runners.base.Watch)."""

    def __init__(self, aborted: Callable[[int, str], None], beat: float, limit: float) -> None:
        self._aborted, self._beat, self._limit = aborted, beat, limit
        self._selector = selectors.DefaultSelector()
        self._peers: dict[bytes, _Peer] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="hetccl-watch", daemon=True).start()

    def add(self, key: bytes, connection: socket.socket, lost: Callable[[int], None]) -> None:
        connection.setblocking(False)
        peer = _Peer(key, connection, lost, time.monotonic())
        with self._lock:
            self._peers[key] = peer
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def tell_abort(self, key: bytes, group: int, text: str) -> None:
        peer = self._peers.get(key)
        if peer is not None:
            body = text.encode()[:_LONGEST]
            peer.send(_FRAME.pack(_ABORT, group, len(body)) + body)

    def _run(self) -> None:
        turn = next_beat = time.monotonic()
        while True:
            for selected, _ in self._selector.select(max(0.0, next_beat - time.monotonic())):
                self._safely(self._read, selected.data)
            now = time.monotonic()
            # Where this very thread was stopped for long, peers are not to blame: what they sent is read first.
            late, turn = now - turn > self._limit / 2, now
            if now < next_beat or late:
                continue
            next_beat = now + self._beat
            with self._lock:
                peers = list(self._peers.values())
            for peer in peers:
                if now - peer.heard > self._limit:
                    self._safely(self._lose, peer, errno.ETIMEDOUT)
                else:
                    peer.send(_FRAME.pack(_BEAT, 0, 0))

    def _safely(self, work: Callable[..., None], peer: _Peer, *arguments: int) -> None:
        """What goes wrong with one peer is no reason to stop watching the others."""
        try:
            work(peer, *arguments)
        except Exception:
            logger.exception("the connection to a peer failed")

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(peer, error.errno or errno.ECONNRESET)
            return
        if not data:
            self._lose(peer, errno.ECONNRESET)
            return
        peer.heard = time.monotonic()
        peer.received += data
        while len(peer.received) >= _FRAME.size:
            kind, group, size = _FRAME.unpack_from(peer.received)
            if size > _LONGEST:
                self._lose(peer, errno.EPROTO)
                return
            if len(peer.received) < _FRAME.size + size:
                return
            text = bytes(peer.received[_FRAME.size : _FRAME.size + size]).decode(errors="replace")
            del peer.received[: _FRAME.size + size]
            if kind == _ABORT:
                self._aborted(group, text)

    def _lose(self, peer: _Peer, code: int) -> None:
        with self._lock:
            del self._peers[peer.key]
            self._selector.unregister(peer.connection)
        peer.lost(code)
