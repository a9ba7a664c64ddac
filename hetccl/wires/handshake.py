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
from dataclasses import dataclass

from hetccl.errors import AuthenticationError, ResourceError

__all__ = ["KEY_BYTES", "PROTOCOL", "Hello", "accept", "connect", "read_exactly"]

PROTOCOL = 1
"""Of everything that travels between ranks; both sides must speak the same."""

KEY_BYTES = 16
_MAGIC = b"hetccl\r\n"
_NONCE = 32
_HELLO = struct.Struct(f"!8sHB{KEY_BYTES}s{_NONCE}s")
_REPLY = struct.Struct(f"!H{KEY_BYTES}s{_NONCE}s32s")
_WELCOME = b"\x01"


@dataclass(frozen=True)
class Hello:
    """Who connects, and which of its connections this is: 0 is the control connection, others carry data."""

    key: bytes
    index: int


def _proof(token: bytes, side: bytes, *values: bytes) -> bytes:
    return hmac.new(token, b"hetccl handshake " + side + b"".join(values), "sha256").digest()


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes. Raises OSError where the connection ends, fails or is silent for its timeout before."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side closed the connection")
        data += part
    return data


def connect(connection: socket.socket, token: bytes, key: bytes, peer: bytes, index: int) -> None:
    """The connector's side. Raises ConnectionError where another process than `peer` answers, AuthenticationError where
    the tokens differ, ResourceError where the protocols do. The socket's timeout applies to each read."""
    nonce = secrets.token_bytes(_NONCE)
    connection.sendall(_HELLO.pack(_MAGIC, PROTOCOL, index, key, nonce))
    protocol, answered, their_nonce, proof = _REPLY.unpack(read_exactly(connection, _REPLY.size))
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
    if read_exactly(connection, 1) != _WELCOME:
        raise AuthenticationError("the peer refused this rank's token (HETCCL_TOKEN_FILE)")


def accept(connection: socket.socket, token: bytes, key: bytes) -> Hello:
    """The acceptor's side. Raises ConnectionError or AuthenticationError where the other side is not one of the job."""
    magic, protocol, index, their_key, their_nonce = _HELLO.unpack(read_exactly(connection, _HELLO.size))
    if magic != _MAGIC:
        raise ConnectionError("not a hetccl connection")
    nonce = secrets.token_bytes(_NONCE)
    values = (their_key, key, their_nonce, nonce, bytes([index]))
    connection.sendall(_REPLY.pack(PROTOCOL, key, nonce, _proof(token, b"accept", *values)))
    if protocol != PROTOCOL:
        raise ConnectionError(f"a rank that speaks protocol {protocol} tried to connect; this one speaks {PROTOCOL}")
    if not hmac.compare_digest(read_exactly(connection, 32), _proof(token, b"connect", *values)):
        raise AuthenticationError("a connection without this job's token was refused")
    connection.sendall(_WELCOME)
    return Hello(their_key, index)
