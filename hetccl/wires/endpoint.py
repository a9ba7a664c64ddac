"""This process among the processes of the job: where it listens, and its links, one a peer, made when first needed.

Of two processes the one with the smaller key connects, first for data, then for control; there it offers shared memory.
The other side answers by itself, whatever its ranks are doing, so no rank waits for another's turn.
"""

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
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hetccl.errors import AuthenticationError, CollectiveError, ResourceError
from hetccl.runners import Link, Runner, runner
from hetccl.topology import Rank
from hetccl.wires import handshake, watch
from hetccl.wires.handshake import CONTROL, DATA, read_exactly
from hetccl.wires.interfaces import choose, interfaces
from hetccl.wires.segment import Segment, sweep

__all__ = ["Connection", "Endpoint", "Member", "endpoint"]

logger = logging.getLogger("hetccl")

HANDSHAKE_SECONDS = 5.0
"""How long a new connection may take to prove that it is one of the job; longer ones are dropped."""

ATTEMPT_SECONDS = 3.0
"""How long one address of a peer is tried before the next."""

GRACE_SECONDS = 1.0
"""How long after a peer's end what it sent before may still arrive."""

MOST_STRANGERS = 64
"""Connections that may be in their handshake at once; more are dropped, and a rank of the job tries again."""

MOST_EARLY = 256
"""Aborts that are kept of groups that are not known: not joined yet, or closed."""

_TCP_USER_TIMEOUT = 18
_OFFER = struct.Struct("!H32s")
_ANSWER = struct.Struct("!?")


class Member(Protocol):
    """A communicator, as far as the endpoint has to do with it."""

    @property
    def broken(self) -> str | None:
        """Why it is not usable any more."""

    def on_abort(self, text: str) -> None:
        """Another rank aborted the group."""


@dataclass(eq=False)
class Connection:
    """A peer process, and what is open to it. `wire` is "shm" or "tcp"; `groups` use it."""

    key: bytes
    wire: str
    link: Link
    sockets: tuple[socket.socket, ...]
    segment: Segment | None
    groups: set[int] = field(default_factory=set)
    lost: bool = False
    open: bool = True


class Endpoint:
    """Listens for the ranks of one job, those that have its token."""

    def __init__(self, token: bytes, interface_rule: str, *, runner: Runner, share_memory: bool) -> None:
        self.key = secrets.token_bytes(handshake.KEY_BYTES)
        self.runner = runner
        self.shares_memory = share_memory and runner.shares_memory
        self.inherited = False
        self._token = token
        self._changed = threading.Condition()
        self._connections: dict[bytes, Connection] = {}
        self._half: dict[bytes, socket.socket] = {}  # data connections of peers, until they offer memory by control
        self._reaching: defaultdict[bytes, threading.Lock] = defaultdict(threading.Lock)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()  # all that a forked child has to close
        self._early: dict[int, str] = {}  # aborts of groups that this process has not joined yet, the oldest first
        self._groups: weakref.WeakValueDictionary[int, Member] = weakref.WeakValueDictionary()
        self._strangers = threading.Semaphore(MOST_STRANGERS)
        if self.shares_memory:
            sweep()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, backlog=1024, dualstack_ipv6=dual)
        self._sockets.add(self._listener)
        port = self._listener.getsockname()[1]
        chosen = choose(interface_rule, interfaces())
        usable = [a for each in chosen for a in each.addresses if dual or ":" not in a]
        self.addresses = tuple((address, port) for address in usable)
        logger.debug("listening on %s", ", ".join(f"{address} port {port}" for address, port in self.addresses))
        beat = min(watch.HEARTBEAT_SECONDS, watch.LIMIT_SECONDS / 4)
        self._watch = runner.watch(self._on_abort, beat, watch.LIMIT_SECONDS)
        threading.Thread(target=self._accept, name="hetccl-listen", daemon=True).start()

    # Groups

    def join(self, group: int, member: Member) -> None:
        """From now on `member` hears of aborts of this group, and now of what came before."""
        with self._changed:
            self._groups[group] = member
            text = self._early.pop(group, None)
        if text is not None:
            member.on_abort(text)

    def leave(self, group: int) -> None:
        """The group is over; nothing of it runs."""
        self._groups.pop(group, None)
        with self._changed:
            for connection in list(self._connections.values()):
                connection.groups.discard(group)
                self._release(connection)

    def tell_abort(self, peer: Rank, group: int, text: str) -> None:
        """Let a peer know that a group was aborted, if there is a connection to it."""
        self._watch.tell_abort(bytes.fromhex(peer.key), group, text)

    def _on_abort(self, group: int, text: str) -> None:
        with self._changed:
            member = self._groups.get(group)
            if member is None:
                self._early[group] = text
                if len(self._early) > MOST_EARLY:
                    del self._early[next(iter(self._early))]
        if member is not None:
            member.on_abort(text)

    # Connections

    def connection(self, peer: Rank, group: int, deadline: float) -> Connection:
        """The connection to a peer, made if there is none yet, for the use of a group.

        Raises ResourceError where the peer cannot be reached until `deadline` (time.monotonic), AuthenticationError
        where it has another token, CollectiveError where the group is aborted meanwhile.
        """
        key = bytes.fromhex(peer.key)
        if self.key < key:
            with self._reaching[key]:
                if key not in self._connections:
                    self._reach(peer, group, deadline)
        with self._changed:
            while (connection := self._connections.get(key)) is None:
                self._check(group)
                left = deadline - time.monotonic()
                if left <= 0:
                    listening = ", ".join(f"{address} port {port}" for address, port in self.addresses)
                    raise ResourceError(
                        f"{_who(peer)} has not connected to host {socket.gethostname()} ({listening}): it is busy "
                        "elsewhere, or cannot reach these addresses; NCCL_SOCKET_IFNAME chooses others"
                    )
                self._changed.wait(min(left, 0.5))
            self._check(group)
            connection.groups.add(group)
        return connection

    def _check(self, group: int) -> None:
        member = self._groups.get(group)
        if member is None:
            raise CollectiveError("the group was closed")
        if member.broken is not None:
            raise CollectiveError(member.broken)

    def _reach(self, peer: Rank, group: int, deadline: float) -> None:
        """Try the peer's addresses, again and again, until one of them is answered by the peer itself."""
        failures: dict[str, str] = {}
        refused = time.monotonic()  # since when every address was: nobody listens there, and the peer did
        while True:
            for address, port in peer.addresses:
                self._check(group)
                left = deadline - time.monotonic()
                gone = time.monotonic() - refused > watch.LIMIT_SECONDS
                if left <= 0 or gone:
                    tried = "; ".join(f"{name}: {failure}" for name, failure in failures.items()) or "out of time"
                    raise ResourceError(
                        f"{_who(peer)} {'is gone' if gone else 'cannot be reached'} from host {socket.gethostname()} "
                        f"({tried}). If these are addresses of the wrong network, name the right interface in "
                        "NCCL_SOCKET_IFNAME"
                    )
                try:
                    self._attempt(peer, address, port, deadline)
                except (OSError, struct.error) as error:
                    failures[f"{address} port {port}"] = (
                        error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                    )
                    if not isinstance(error, ConnectionRefusedError):
                        refused = time.monotonic()
                except (AuthenticationError, ResourceError) as error:
                    raise type(error)(f"{_who(peer)}: {error}") from None
                else:
                    logger.debug("connected to %s at %s port %d", _who(peer), address, port)
                    return
            time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))

    def _attempt(self, peer: Rank, address: str, port: int, deadline: float) -> None:
        """Both connections, and the wire over them, or nothing."""
        with contextlib.ExitStack() as undo:
            data, control = (undo.enter_context(self._dial(peer, address, port, i, deadline)) for i in (DATA, CONTROL))
            patience = min(deadline, time.monotonic() + watch.LIMIT_SECONDS)
            segment = self._offer(control, peer, patience)
            undo.pop_all()
        self._open(bytes.fromhex(peer.key), control, data, segment, leads=True)

    def _dial(self, peer: Rank, address: str, port: int, index: int, deadline: float) -> socket.socket:
        left = max(0.001, deadline - time.monotonic())
        made = socket.create_connection((address, port), timeout=min(ATTEMPT_SECONDS, left))
        self._sockets.add(made)
        try:
            until = min(deadline, time.monotonic() + HANDSHAKE_SECONDS)
            handshake.connect(made, self._token, self.key, bytes.fromhex(peer.key), index, until)
            _tune(made, index)
        except BaseException:
            made.close()
            raise
        return made

    def _offer(self, control: socket.socket, peer: Rank, deadline: float) -> Segment | None:
        """Memory that the peer shares, or None where there is none: only trying tells."""
        segment = None
        if self.shares_memory and peer.shares_memory:
            try:
                segment = Segment.create(2 * self.runner.ring_bytes())
            except ResourceError as error:
                logger.warning("tcp instead of shared memory to %s: %s", _who(peer), error)
        try:
            name = segment.path.name.encode() if segment else b""
            control.sendall(_OFFER.pack(len(name), segment.cookie if segment else b"") + name)
            (attached,) = _ANSWER.unpack(read_exactly(control, _ANSWER.size, deadline))
        finally:
            if segment:
                segment.unlink()
        return segment if attached else None

    def _open(
        self, key: bytes, control: socket.socket, data: socket.socket, segment: Segment | None, *, leads: bool
    ) -> None:
        if segment is None:
            link, wire = self.runner.tcp([data]), "tcp"
        else:
            rings = segment.address, segment.address + self.runner.ring_bytes()
            link, wire = self.runner.shm(*(rings if leads else reversed(rings))), "shm"
        connection = Connection(key, wire, link, (control, data), segment)
        with self._changed:
            # Before anybody uses it: this rank's next call may keep the GIL for long.
            self._watch.add(key, control, lambda code: self._lose(connection, code))
            self._connections[key] = connection
            self._changed.notify_all()

    def _lose(self, connection: Connection, code: int) -> None:
        with self._changed:
            connection.lost = True
            self._release(connection)
        if connection.wire == "tcp" and code == errno.ECONNRESET:
            late = threading.Timer(GRACE_SECONDS, self._kill, (connection, code))
            late.daemon = True
            late.start()
        else:
            self._kill(connection, code)

    def _kill(self, connection: Connection, code: int) -> None:
        with self._changed:
            if connection.open:
                connection.link.kill(code)

    def _release(self, connection: Connection) -> None:
        """Close what leads to a peer that is gone, once no group uses it."""
        if connection.open and connection.lost and not connection.groups:
            connection.open = False
            del self._connections[connection.key]
            connection.link.close()
            for each in connection.sockets:
                each.close()

    # Listening

    def _accept(self) -> None:
        while True:
            try:
                stranger, _ = self._listener.accept()
            except OSError:
                time.sleep(0.01)  # out of descriptors: later there may be some
                continue
            self._sockets.add(stranger)
            if not self._strangers.acquire(blocking=False):
                stranger.close()
                continue
            try:
                threading.Thread(target=self._greet, args=(stranger,), name="hetccl-greet", daemon=True).start()
            except RuntimeError:  # out of threads
                self._strangers.release()
                stranger.close()

    def _greet(self, stranger: socket.socket) -> None:
        try:
            try:
                until = time.monotonic() + HANDSHAKE_SECONDS
                hello = handshake.accept(stranger, self._token, self.key, until)
                _tune(stranger, hello.index)
            finally:
                self._strangers.release()
            if hello.index == DATA:
                self._keep(hello.key, stranger)
            else:
                self._answer(hello.key, stranger)
        except (OSError, struct.error, AuthenticationError) as error:
            logger.debug("a connection was refused: %s", error)
            stranger.close()

    def _keep(self, key: bytes, data: socket.socket) -> None:
        """A peer's connection for data, until its control connection comes, or the peer tries anew."""
        with self._changed:
            older, self._half[key] = self._half.get(key), data
            self._changed.notify_all()
        if older is not None:
            older.close()
        try:
            handshake.welcome(data)
            with self._changed:
                self._changed.wait_for(lambda: self._half.get(key) is not data, HANDSHAKE_SECONDS)
        finally:
            with self._changed:
                unused = self._half.get(key) is data
                if unused:
                    del self._half[key]
            if unused:
                data.close()

    def _answer(self, key: bytes, control: socket.socket) -> None:
        """A peer's control connection: take the memory that it offers, and open what it has connected."""
        handshake.welcome(control)
        until = time.monotonic() + HANDSHAKE_SECONDS
        length, cookie = _OFFER.unpack(read_exactly(control, _OFFER.size, until))
        name = read_exactly(control, length, until).decode(errors="replace")
        segment = None
        if name and self.shares_memory:
            segment = Segment.attach(name, cookie, 2 * self.runner.ring_bytes())
        with self._changed:
            data = self._half.pop(key, None)
            self._changed.notify_all()
            known = key in self._connections
        if data is None:
            raise ConnectionError("a control connection without one for data")
        try:
            if known:
                raise ConnectionError("a second connection of a peer")
            control.sendall(_ANSWER.pack(segment is not None))
        except OSError:
            data.close()
            raise
        self._open(key, control, data, segment, leads=False)

    def forget(self) -> None:
        """In a forked child: close what it inherited, so that the parent's death is seen by its peers."""
        self.inherited = True
        for each in self._sockets:
            with contextlib.suppress(OSError):
                os.close(each.detach())


def _tune(connection: socket.socket, index: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Of the control connection alone: data may wait for long, for a rank that is busy and does not read.
    if index == CONTROL:
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, int(watch.LIMIT_SECONDS * 1000))


def _who(peer: Rank) -> str:
    return f"the rank of pool {peer.pool} on host {peer.host} (process {peer.pid})"


_endpoint: Endpoint | None = None
_lock = threading.Lock()


def endpoint(token: bytes, interface_rule: str, make: Callable[[], Runner] = runner, *, share_memory: bool) -> Endpoint:
    """This process's endpoint; the first call decides what it is like."""
    global _endpoint  # noqa: PLW0603 - wires belong to the process
    with _lock:
        if _endpoint is None:
            _endpoint = Endpoint(token, interface_rule, runner=make(), share_memory=share_memory)
        return _endpoint


def _in_child() -> None:
    global _endpoint, _lock
    if _endpoint is not None:
        _endpoint.forget()
    _endpoint, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_in_child)
