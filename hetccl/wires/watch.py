"""The control connections: who is alive, and what they tell of a group that was aborted.

A closed connection is not enough to notice a death (a lost node sends nothing), so each side sends a heartbeat. A rank
that computes for long is alive: the thread here needs but a moment of it.
"""

import errno
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["HEARTBEAT_SECONDS", "LIMIT_SECONDS", "Watch"]

HEARTBEAT_SECONDS = 1.0
LIMIT_SECONDS = 10.0
"""A peer that has sent nothing for so long is lost."""

_BEAT, _ABORT = 1, 2
_FRAME = struct.Struct("!BQI")
_LONGEST = 1 << 16


@dataclass(eq=False)
class _Peer:
    connection: socket.socket
    lost: Callable[[int], None]
    heard: float
    received: bytearray = field(default_factory=bytearray)
    sending: threading.Lock = field(default_factory=threading.Lock)


class Watch:
    """One thread for all peers of this process. `aborted(group, text)` is called for each abort that a peer tells."""

    def __init__(self, aborted: Callable[[int, str], None]) -> None:
        self._aborted = aborted
        self._selector = selectors.DefaultSelector()
        self._peers: dict[bytes, _Peer] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="hetccl-watch", daemon=True).start()

    def add(self, key: bytes, connection: socket.socket, lost: Callable[[int], None]) -> None:
        """Watch a peer; `lost(errno)` is called once when it is gone."""
        connection.setblocking(False)
        peer = _Peer(connection, lost, time.monotonic())
        with self._lock:
            self._peers[key] = peer
            self._selector.register(connection, selectors.EVENT_READ, key)

    def tell_abort(self, key: bytes, group: int, text: str) -> None:
        """Let a peer know that a group was aborted. One that cannot be told is lost anyway."""
        peer = self._peers.get(key)
        if peer is not None:
            body = text.encode()[:_LONGEST]
            self._send(peer, _FRAME.pack(_ABORT, group, len(body)) + body)

    def _send(self, peer: _Peer, frame: bytes) -> None:
        with peer.sending:
            deadline = time.monotonic() + 1.0
            while frame and time.monotonic() < deadline:
                try:
                    frame = frame[peer.connection.send(frame) :]
                except BlockingIOError:
                    time.sleep(0.001)  # its buffer is full: it has not read for long
                except OSError:
                    return  # the reading side notices, and reports it

    def _run(self) -> None:
        next_beat = time.monotonic()
        while True:
            for selected, _ in self._selector.select(max(0.0, next_beat - time.monotonic())):
                self._read(selected.data)
            now = time.monotonic()
            if now < next_beat:
                continue
            next_beat = now + HEARTBEAT_SECONDS
            with self._lock:
                peers = list(self._peers.items())
            for key, peer in peers:
                if now - peer.heard > LIMIT_SECONDS:
                    self._lose(key, errno.ETIMEDOUT)
                else:
                    self._send(peer, _FRAME.pack(_BEAT, 0, 0))

    def _read(self, key: bytes) -> None:
        peer = self._peers.get(key)
        if peer is None:
            return
        try:
            data = peer.connection.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(key, error.errno or errno.ECONNRESET)
            return
        if not data:
            self._lose(key, errno.ECONNRESET)
            return
        peer.heard = time.monotonic()
        peer.received += data
        while len(peer.received) >= _FRAME.size:
            kind, group, size = _FRAME.unpack_from(peer.received)
            if len(peer.received) < _FRAME.size + size:
                return
            text = bytes(peer.received[_FRAME.size : _FRAME.size + size]).decode(errors="replace")
            del peer.received[: _FRAME.size + size]
            if kind == _ABORT:
                self._aborted(group, text)

    def _lose(self, key: bytes, code: int) -> None:
        with self._lock:
            peer = self._peers.pop(key)
            self._selector.unregister(peer.connection)
        peer.lost(code)
