"""Collectives that were started: what is known of them, and what is to happen when they are done."""

import threading
from collections.abc import Callable

from hetccl.errors import HetcclError
from hetccl.runners import Failure, Launch, Ticket

__all__ = ["Handle"]


class Handle:
    """A collective that runs by itself. The tensors it works on are kept until it is done."""

    def __init__(self, settle: Callable[[Failure], HetcclError], tensors: tuple[object, ...]) -> None:
        self._settle, self._tensors = settle, tensors
        self._ticket: Ticket
        self._lock = threading.Lock()
        self._settling = threading.Lock()
        self._error: HetcclError | None = None
        self._calls: list[Callable[[], None]] = []

    def start(self, launch: Launch, source: int, target: int, timeout: float) -> "Handle":
        """Called once: begin."""
        self._ticket = launch.start(source, target, timeout, self._on_done)
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is done, for `timeout` seconds at most; None: as long as its own deadline.

        Raises what it failed with. False where it is not done in time.
        """
        if not self.ended(timeout):
            return False
        if (error := self.error) is not None:
            raise error
        return True

    def ended(self, timeout: float | None = None) -> bool:
        """As `wait`, but whether it ended well or not does not matter."""
        if not self._ticket.wait(timeout):
            return False
        self._tensors = ()
        return True

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.ended(0)

    @property
    def failed(self) -> bool:
        """Whether it has ended badly. Unlike `error`, asking has no consequences."""
        return self.done and self._ticket.failure is not None

    @property
    def error(self) -> HetcclError | None:
        """What it failed with, once it is done."""
        return self._end(self._ticket)

    def then(self, call: Callable[[], None]) -> None:
        """Call this once it is done, in another thread, or here where it is done already. It must not block."""
        with self._lock:
            self._calls.append(call)
        if not self._ticket.watch():
            self._call_all()

    def _end(self, ticket: Ticket) -> HetcclError | None:
        failure = ticket.failure
        if failure is None:
            return None
        with self._settling:  # the other ranks are told once
            if self._error is None:
                self._error = self._settle(failure)
            return self._error

    def _on_done(self, ticket: Ticket) -> None:
        if ticket.failure is None:
            self._call_all()
        else:  # to agree with the other ranks may take a while
            threading.Thread(target=self._on_failed, args=(ticket,), name="hetccl-failed", daemon=True).start()

    def _on_failed(self, ticket: Ticket) -> None:
        self._end(ticket)
        self._call_all()

    def _call_all(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call()
