"""Both sides of a new connection prove that they have the job's token, before any other byte.

    connector -> acceptor   HELLO: magic, protocol, its key, its nonce, what the connection is for
    acceptor -> connector   its key, its nonce, HMAC over both sides' values
    connector -> acceptor   HMAC over both sides' values, for the other direction
    acceptor -> connector   one byte: welcome

A key is the random name of a process. A stranger learns nothing but that hetccl listens here.
"""

import hmac
import secrets
import socket
import struct
import time
from dataclasses import dataclass

from hetccl.errors import AuthenticationError, ResourceError

__all__ = ["CONTROL", "DATA", "KEY_BYTES", "PROTOCOL", "Hello", "accept", "connect", "read_exactly", "welcome"]

PROTOCOL = 3
"""Of everything that travels between ranks; both sides must speak the same."""

KEY_BYTES = 16
CONTROL, DATA = 0, 1
"""What a connection is for."""
_MAGIC = b"hetccl\r\n"
_NONCE = 32
_HELLO = struct.Struct(f"!8sHB{KEY_BYTES}s{_NONCE}s")
_REPLY = struct.Struct(f"!H{KEY_BYTES}s{_NONCE}s32s")
_WELCOME = b"\x01"


@dataclass(frozen=True)
class Hello:
    """Who connects, and what for."""

    key: bytes
    index: int


def _proof(token: bytes, side: bytes, *values: bytes) -> bytes:
    return hmac.new(token, b"hetccl handshake " + side + b"".join(values), "sha256").digest()


def read_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes. Raises ConnectionError where the other side ends before, TimeoutError at the deadline
    (time.monotonic), however slowly bytes drip in."""
    data = b""
    while len(data) < size:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side closed the connection")
        data += part
    return data


def connect(connection: socket.socket, token: bytes, key: bytes, peer: bytes, index: int, deadline: float) -> None:
    """The connector's side. Raises ConnectionError where another process than `peer` answers, AuthenticationError where
    the tokens differ, ResourceError where the protocols do, TimeoutError at the deadline (time.monotonic)."""
    nonce = secrets.token_bytes(_NONCE)
    connection.sendall(_HELLO.pack(_MAGIC, PROTOCOL, index, key, nonce))
    protocol, answered, their_nonce, proof = _REPLY.unpack(read_exactly(connection, _REPLY.size, deadline))
    if protocol != PROTOCOL:
        raise ResourceError(
            f"the peer speaks protocol {protocol} of hetccl, this rank {PROTOCOL}: use one release in all pools"
        )
    if answered != peer:
        raise ConnectionError("another process answers at this address")
    values = (key, answered, nonce, their_nonce, bytes([index]))
    if not hmac.compare_digest(proof, _proof(token, b"accept", *values)):
        raise AuthenticationError("the peer does not have this job's token (HETCCL_TOKEN_FILE)")
    connection.sendall(_proof(token, b"connect", *values))
    read_exactly(connection, len(_WELCOME), deadline)


def accept(connection: socket.socket, token: bytes, key: bytes, deadline: float) -> Hello:
    """The acceptor's side, up to `welcome`. Raises ConnectionError or AuthenticationError where the other side is not
    one of the job, TimeoutError at the deadline (time.monotonic)."""
    magic, protocol, index, their_key, their_nonce = _HELLO.unpack(read_exactly(connection, _HELLO.size, deadline))
    if magic != _MAGIC or index not in (CONTROL, DATA):
        raise ConnectionError("not a hetccl connection")
    nonce = secrets.token_bytes(_NONCE)
    values = (their_key, key, their_nonce, nonce, bytes([index]))
    connection.sendall(_REPLY.pack(PROTOCOL, key, nonce, _proof(token, b"accept", *values)))
    if protocol != PROTOCOL:
        raise ConnectionError(f"a rank that speaks protocol {protocol} tried to connect; this one speaks {PROTOCOL}")
    if not hmac.compare_digest(read_exactly(connection, 32, deadline), _proof(token, b"connect", *values)):
        raise AuthenticationError("a connection without this job's token was refused")
    return Hello(their_key, index)


def welcome(connection: socket.socket) -> None:
    """Tell the connector that it was accepted."""
    connection.sendall(_WELCOME)
