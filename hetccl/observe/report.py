"""Rank 0's report, `GET /v1/report`: what the operator asks to learn that hetccl works in the pods.

The answer is JSON as docs/architecture.md describes it. Whoever asks shows a key made from the job's token, which gives
the token itself to nobody.
"""

import hashlib
import hmac
import json
import os
import socket
import socketserver
import threading
import weakref
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

PATH = "/v1/report"
REQUEST_SECONDS = 5
"""How long a client may take to send its request."""
CONNECTIONS = 8
"""How many clients are served at a time; more are turned away."""


def bearer(token: bytes) -> str:
    """What follows `Authorization: Bearer ` in a request."""
    return hmac.new(token, b"hetccl report", hashlib.sha256).hexdigest()


class ReportServer:
    """Answers with `report` to whoever knows `token`, from a daemon thread, on `port` of all addresses.

    Raises OSError where the port cannot be bound. A forked child closes its copy of the socket.
    """

    def __init__(self, port: int, token: bytes, report: Callable[[], Mapping[str, Any]]) -> None:
        self._server: _Server | None = _Server(port, bearer(token), report)
        self.port: int = self._server.server_address[1]
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="hetccl-report", daemon=True
        )
        thread.start()
        _open.add(self)

    def close(self) -> None:
        """Stop answering and free the port. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def close_copy(self) -> None:
        """Close the socket in a forked child, where the serving thread does not exist."""
        server, self._server = self._server, None
        if server is not None:
            server.socket.close()


_open: "weakref.WeakSet[ReportServer]" = weakref.WeakSet()


def _close_copies() -> None:
    for server in list(_open):
        server.close_copy()


os.register_at_fork(after_in_child=_close_copies)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    # Not http.server's: that one asks the resolver for this host's full name, which may take long.
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int, key: str, report: Callable[[], Mapping[str, Any]]) -> None:
        self.key = key
        self.report = report
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        dual = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual else socket.AF_INET
        super().__init__(("::" if dual else "", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away or sends garbage is no news for the trainer's log."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_SECONDS
    server_version = "hetccl"
    sys_version = ""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.key}".encode()):
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": "wants 'Authorization: Bearer <key made from the token>'"})
        elif self.path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"the only path is {PATH}"})
        else:
            self._answer(HTTPStatus.OK, self.server.report())

    def _answer(self, status: HTTPStatus, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the trainer's log is the user's."""
