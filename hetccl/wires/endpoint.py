"""This process among the processes of the job: where it listens, and its links, one a peer, made when first needed."""

import contextlib
import errno
import logging
import os
import secrets
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hetccl.errors import AuthenticationError, ResourceError
from hetccl.runners import Link, Runner, runner
from hetccl.topology import Rank
from hetccl.wires import handshake
from hetccl.wires.handshake import read_exactly
from hetccl.wires.interfaces import choose, interfaces
from hetccl.wires.segment import Segment
from hetccl.wires.watch import LIMIT_SECONDS, Watch

__all__ = ["Connection", "Endpoint", "Member", "endpoint", "forked"]

logger = logging.getLogger("hetccl")

HANDSHAKE_SECONDS = 5.0
"""How long a new connection may take to prove that it is one of the job; longer ones are dropped."""

ATTEMPT_SECONDS = 3.0
"""How long one address of a peer is tried before the next."""

MOST_STRANGERS = 64
"""Connections that may be in their handshake at once; more are dropped, and a rank of the job tries again."""

CONTROL, DATA = 0, 1
_TCP_USER_TIMEOUT = 18
_OFFER = struct.Struct("!H32s")
_ANSWER = struct.Struct("!?")


class Member(Protocol):
    """A communicator, as far as the endpoint has to do with it."""

    def on_abort(self, text: str) -> None:
        """Another rank aborted the group."""


@dataclass(eq=False)
class Connection:
    """A peer process, and what is open to it. `wire` is "shm" or "tcp"; `lost` is an errno once it is gone."""

    key: bytes
    sockets: dict[int, socket.socket] = field(default_factory=dict)
    link: Link | None = None
    wire: str = ""
    segment: Segment | None = None
    lost: int = 0
    making: threading.Lock = field(default_factory=threading.Lock)


class Endpoint:
    """Listens for the ranks of one job, those that have its token."""

    def __init__(self, token: bytes, interface_rule: str, *, runner: Runner, share_memory: bool) -> None:
        self.key = secrets.token_bytes(handshake.KEY_BYTES)
        self.runner = runner
        self.shares_memory = share_memory and runner.shares_memory
        self._token = token
        self._connections: dict[bytes, Connection] = {}
        self._changed = threading.Condition()
        self._groups: weakref.WeakValueDictionary[int, Member] = weakref.WeakValueDictionary()
        self._strangers = threading.Semaphore(MOST_STRANGERS)
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, backlog=1024, dualstack_ipv6=dual)
        port = self._listener.getsockname()[1]
        chosen = choose(interface_rule, interfaces())
        usable = [a for each in chosen for a in each.addresses if dual or ":" not in a]
        self.addresses = tuple((address, port) for address in usable)
        logger.debug("listening on %s", ", ".join(f"{address} port {port}" for address, port in self.addresses))
        self._watch = Watch(self._on_abort)
        threading.Thread(target=self._accept, name="hetccl-listen", daemon=True).start()

    # Groups

    def join(self, group: int, member: Member) -> None:
        """From now on `member` hears of aborts of this group."""
        self._groups[group] = member

    def leave(self, group: int) -> None:
        """The group is over."""
        self._groups.pop(group, None)

    def tell_abort(self, peer: Rank, group: int, text: str) -> None:
        """Let a peer know that a group was aborted, if there is a connection to it."""
        self._watch.tell_abort(bytes.fromhex(peer.key), group, text)

    def _on_abort(self, group: int, text: str) -> None:
        member = self._groups.get(group)
        if member is not None:
            member.on_abort(text)

    # Connections

    def connection(self, peer: Rank, deadline: float) -> Connection:
        """The connection to a peer, made if there is none yet: of two processes the one with the smaller key connects.

        Raises ResourceError where the peer cannot be reached until `deadline` (time.monotonic), AuthenticationError
        where it has another token.
        """
        key = bytes.fromhex(peer.key)
        connection = self._connection(key)
        with connection.making:
            if connection.link is None:
                if self.key < key:
                    self._reach(connection, peer, deadline)
                else:
                    self._await(connection, peer, deadline)
                self._open(connection, peer, deadline)
        return connection

    def _connection(self, key: bytes) -> Connection:
        with self._changed:
            return self._connections.setdefault(key, Connection(key))

    def _reach(self, connection: Connection, peer: Rank, deadline: float) -> None:
        for index in (CONTROL, DATA):
            if index not in connection.sockets:
                self._take(connection, index, self._connect(peer, index, deadline))

    def _connect(self, peer: Rank, index: int, deadline: float) -> socket.socket:
        """Try the peer's addresses, again and again, until one of them is answered by the peer itself."""
        failures: dict[str, str] = {}
        while True:
            for address, port in peer.addresses:
                left = deadline - time.monotonic()
                if left <= 0:
                    tried = "; ".join(f"{name}: {failure}" for name, failure in failures.items()) or "out of time"
                    raise ResourceError(
                        f"{_who(peer)} cannot be reached from host {socket.gethostname()} ({tried}). If these are "
                        "addresses of the wrong network, name the right interface in NCCL_SOCKET_IFNAME"
                    )
                try:
                    made = socket.create_connection((address, port), timeout=min(ATTEMPT_SECONDS, left))
                except OSError as error:
                    failures[f"{address} port {port}"] = error.strerror or str(error)
                    continue
                try:
                    made.settimeout(min(HANDSHAKE_SECONDS, left))
                    handshake.connect(made, self._token, self.key, bytes.fromhex(peer.key), index)
                except (OSError, struct.error) as error:
                    made.close()
                    failures[f"{address} port {port}"] = str(error)
                    continue
                except (AuthenticationError, ResourceError) as error:
                    made.close()
                    raise type(error)(f"{_who(peer)}: {error}") from None
                logger.debug("connected to %s at %s port %d", _who(peer), address, port)
                _tune(made, index)
                return made
            time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))

    def _take(self, connection: Connection, index: int, made: socket.socket) -> None:
        """A connection that is authenticated. Heartbeats begin with it, also where this side needs no link yet."""
        with self._changed:
            connection.sockets[index] = made
            self._changed.notify_all()
        if index == CONTROL:
            self._watch.add(connection.key, made, lambda code: self._lose(connection, code))

    def _await(self, connection: Connection, peer: Rank, deadline: float) -> None:
        with self._changed:
            while len(connection.sockets) < 2:
                left = deadline - time.monotonic()
                if connection.lost:
                    raise ResourceError(f"{_who(peer)} was lost: {os.strerror(connection.lost)}")
                if left <= 0:
                    listening = ", ".join(f"{address} port {port}" for address, port in self.addresses)
                    raise ResourceError(
                        f"{_who(peer)} has not connected to host {socket.gethostname()} ({listening}): it is busy "
                        "elsewhere, or cannot reach these addresses; NCCL_SOCKET_IFNAME chooses others"
                    )
                self._changed.wait(left)

    def _open(self, connection: Connection, peer: Rank, deadline: float) -> None:
        data = connection.sockets[DATA]
        data.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            segment = self._segment(data, peer, leads=self.key < connection.key)
        except OSError as error:
            raise ResourceError(f"{_who(peer)} was lost while the wire to it was made: {error}") from None
        if segment is not None:
            ring = self.runner.ring_bytes()
            first, second = segment.address, segment.address + ring
            tx, rx = (first, second) if self.key < connection.key else (second, first)
            connection.segment, connection.wire = segment, "shm"
            connection.link = self.runner.shm(tx, rx)
        else:
            connection.wire = "tcp"
            connection.link = self.runner.tcp([data])
        if connection.lost:
            connection.link.kill(connection.lost)

    def _segment(self, data: socket.socket, peer: Rank, *, leads: bool) -> Segment | None:
        """Memory shared with the peer, or None where there is none: only trying tells."""
        if not (self.shares_memory and peer.shares_memory):
            return None
        size = 2 * self.runner.ring_bytes()
        if not leads:
            length, cookie = _OFFER.unpack(read_exactly(data, _OFFER.size))
            segment = Segment.attach(read_exactly(data, length).decode(), cookie, size) if length else None
            data.sendall(_ANSWER.pack(segment is not None))
            return segment
        try:
            segment = Segment.create(size)
        except ResourceError as error:
            logger.warning("tcp instead of shared memory to %s: %s", _who(peer), error)
            data.sendall(_OFFER.pack(0, bytes(32)))
            read_exactly(data, _ANSWER.size)
            return None
        try:
            name = segment.path.name.encode()
            data.sendall(_OFFER.pack(len(name), segment.cookie) + name)
            (attached,) = _ANSWER.unpack(read_exactly(data, _ANSWER.size))
        finally:
            segment.unlink()
        return segment if attached else None

    def _lose(self, connection: Connection, code: int) -> None:
        with self._changed:
            connection.lost = code
            self._changed.notify_all()
        if connection.link is not None:
            connection.link.kill(code)

    # Listening

    def _accept(self) -> None:
        while True:
            try:
                stranger, _ = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EBADF:
                    return  # a forked child closed it
                time.sleep(0.01)  # out of descriptors: later there may be some
                continue
            if self._strangers.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(stranger,), name="hetccl-greet", daemon=True).start()
            else:
                stranger.close()

    def _greet(self, stranger: socket.socket) -> None:
        try:
            stranger.settimeout(HANDSHAKE_SECONDS)
            drop = threading.Timer(HANDSHAKE_SECONDS, _hang_up, (stranger,))
            drop.daemon = True
            drop.start()
            try:
                hello = handshake.accept(stranger, self._token, self.key)
            finally:
                drop.cancel()
            _tune(stranger, hello.index)
        except (OSError, struct.error, AuthenticationError) as error:
            logger.debug("a connection was refused: %s", error)
            stranger.close()
            return
        finally:
            self._strangers.release()
        self._take(self._connection(hello.key), hello.index, stranger)

    def forget(self) -> None:
        """In a forked child: close what it inherited, so that the parent's death is seen by its peers."""
        for each in (self._listener, *(s for c in self._connections.values() for s in c.sockets.values())):
            with contextlib.suppress(OSError):
                os.close(each.detach())


def _hang_up(stranger: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is gone already
        stranger.shutdown(socket.SHUT_RDWR)


def _tune(connection: socket.socket, index: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Of the control connection alone: data may wait for long, for a rank that is busy and does not read.
    if index == CONTROL:
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, int(LIMIT_SECONDS * 1000))


def _who(peer: Rank) -> str:
    return f"the rank of pool {peer.pool} on host {peer.host} (process {peer.pid})"


_endpoint: Endpoint | None = None
_lock = threading.Lock()
_inherited = False


def forked() -> bool:
    """Whether this process is a forked child of one that had an endpoint: it has no wires."""
    return _inherited


def _in_child() -> None:
    global _inherited  # noqa: PLW0603 - wires belong to the process
    if _endpoint is not None:
        _inherited = True
        _endpoint.forget()


os.register_at_fork(after_in_child=_in_child)


def endpoint(token: bytes, interface_rule: str, make: Callable[[], Runner] = runner, *, share_memory: bool) -> Endpoint:
    """This process's endpoint; the first call decides what it is like."""
    global _endpoint  # noqa: PLW0603 - wires belong to the process
    with _lock:
        if _endpoint is None:
            _endpoint = Endpoint(token, interface_rule, runner=make(), share_memory=share_memory)
        return _endpoint
