"""Operations in flight: the handle that torch.distributed gives the user, and the lanes that run them in order."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta

import torch
from torch import Tensor
from torch._C import _DistBackendError as DistBackendError
from torch._C._distributed_c10d import Work
from torch.futures import Future
from torch.torch_version import TorchVersion

from hetccl.errors import HetcclError
from hetccl.handle import Handle

Starting = Callable[[], AbstractContextManager[list[Handle]]]
"""Makes a block in which a communicator's calls are only started: `Communicator.starting`."""


class _Threads:
    """Runs calls at once, each on a thread of its own that is kept for later calls.

    Callbacks of a future run where it is completed and may wait for another operation: no fixed number of threads
    would be enough for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0

    def run(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        with self._lock:
            if self._idle:
                self._idle -= 1
                return
        threading.Thread(target=self._serve, name="hetccl-future", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._calls.get()()
            with self._lock:
                self._idle += 1


_threads = _Threads()


class _Unclaimed:
    """Keeps operations from being collected between their return to torch and its first call of them.

    Before 2.7 torch's C++ code holds its own part of a Work only; with the Python part gone, its wait() and
    getFuture() are those of a Work that does nothing. The oldest go first where more than `limit` are never called.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[int, Work] = {}

    def keep(self, work: Work) -> None:
        self._kept[id(work)] = work
        if len(self._kept) > self._limit:
            self._kept.pop(next(iter(self._kept)), None)

    def claim(self, work: Work) -> None:
        self._kept.pop(id(work), None)


_unclaimed = _Unclaimed(limit=256) if TorchVersion(torch.__version__) < "2.7" else None


def translated(error: Exception) -> Exception:
    """hetccl's errors as those that programs catch from torch.distributed."""
    if not isinstance(error, HetcclError):
        return error
    raised = DistBackendError(f"hetccl: {error}")
    raised.__cause__ = error
    return raised


class Operation(Work):
    """One operation: `call` does it, blocking, and `outputs` are the tensors that hold its result.

    With `starting` it needs no thread to wait in: in a block of that kind, `call` starts it and does nothing else.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[], None],
        outputs: Sequence[Tensor] = (),
        source: int = -1,
        starting: Starting | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.starting = starting
        self._call: Callable[[], None] | None = call
        self._outputs = list(outputs)
        self._source = source
        self._handles: list[Handle] = []
        self._error: Exception | None = None
        self._done = False
        self._lock = threading.Lock()
        self._waiters: threading.Event | None = None  # made by the first who has to wait: few do
        self._future: Future[list[Tensor] | None] | None = None
        if _unclaimed is not None:
            _unclaimed.keep(self)

    def execute(self) -> None:
        """Do it, in this thread, and release whoever waits for it."""
        call, self._call = self._call, None
        assert call is not None
        try:
            with torch.no_grad():
                call()
        except Exception as error:
            self._error = translated(error)
        future = self._release()
        if future is not None:
            _threads.run(lambda: self._complete(future))

    def start(self) -> None:
        """Start it and return."""
        call, self._call = self._call, None
        assert call is not None
        assert self.starting is not None
        with torch.no_grad(), self.starting() as handles:
            try:
                call()
            except Exception as error:
                self._error = translated(error)
        self._handles = handles
        self._release()  # what is left to wait for are the handles

    def _release(self) -> "Future[list[Tensor] | None] | None":
        """Let everybody go who waits. Returns the future that somebody asked for."""
        with self._lock:
            self._done = True
            if self._waiters is not None:
                self._waiters.set()
            return self._future

    def fail(self, error: Exception) -> None:
        """End it without doing it."""

        def call() -> None:
            raise error

        self._call = call
        self.execute()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Block until it is done, and raise its error. `timeout` 0: wait as long as the operation's own deadline."""
        self._claim()
        if not (self._over() or self.ended(timeout.total_seconds() or None)):
            raise DistBackendError(f"hetccl: {self.name} was not done within the {timeout} that wait() was given")
        if (error := self.exception()) is not None:
            raise error
        return True

    def _over(self) -> bool:
        """Whether it is done with nothing left to wait for, at the least cost."""
        return self._done and not self._handles

    def ended(self, seconds: float | None) -> bool:
        """Whether it ends, well or not, within so many seconds; None: as long as it takes."""
        if self._over():
            return True
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            if not self._done and self._waiters is None:
                self._waiters = threading.Event()
            waiters = None if self._done else self._waiters
        if waiters is not None and not waiters.wait(seconds):
            return False
        left = seconds
        for handle in self._handles:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
            if not handle.ended(left):
                return False
        return True

    def get_future(self) -> "Future[list[Tensor] | None]":
        self._claim()
        with self._lock:
            if self._future is None:
                future: Future[list[Tensor] | None] = Future()
                self._future = future
                if self._handles:
                    self._handles[-1].then(lambda: _threads.run(lambda: self._complete(future)))
                elif self._done:
                    self._complete(future)
            return self._future

    def _claim(self) -> None:
        if _unclaimed is not None:
            _unclaimed.claim(self)

    def _complete(self, future: "Future[list[Tensor] | None]") -> None:
        if (error := self.exception()) is not None:
            future.set_exception(error)  # type: ignore[arg-type]
        else:
            future.set_result(self._outputs or None)

    def is_completed(self) -> bool:
        return self.ended(0)

    def is_success(self) -> bool:
        return self.ended(0) and self.exception() is None

    def exception(self) -> Exception | None:
        if self._error is None and self._handles and self.ended(0):
            errors = [error for handle in self._handles if (error := handle.error) is not None]
            self._error = translated(errors[0]) if errors else None
        return self._error

    def result(self) -> list[Tensor]:
        self.wait()
        return self._outputs

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank


class Lane:
    """Runs operations one at a time, in the order in which they are handed in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[Operation] = deque()
        self._busy = False
        self._closed = False
        self._started: Operation | None = None  # the latest that runs by itself
        self._thread: threading.Thread | None = None

    def run(self, operation: Operation) -> None:
        """Do the operation and wait for it: in the calling thread, unless others are before it."""
        with self._changed:
            inline = not (self._busy or self._waiting or self._closed)
            if inline:
                self._busy = True
        if not inline:
            self.submit(operation)
            operation.wait()
            return
        try:
            self._execute(operation)
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        operation.wait()

    def submit(self, operation: Operation) -> None:
        """Do the operation after those that were handed in before: by itself, or on the lane's thread."""
        with self._changed:
            if operation.starting is not None and not (self._busy or self._waiting or self._closed):
                self._started = operation
                operation.start()
                return
            if not self._closed:
                self._waiting.append(operation)
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name=f"hetccl-{self._name}", daemon=True)
                    self._thread.start()
                return
        operation.fail(DistBackendError("hetccl: the process group has been destroyed"))

    def drain(self, seconds: float) -> bool:
        """Take no more operations, and wait `seconds` at most for those taken. True where all of them are done."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            idle = self._changed.wait_for(lambda: not (self._busy or self._waiting), seconds)
            started = self._started
        return idle and (started is None or started.ended(max(0.0, deadline - time.monotonic())))

    def _execute(self, operation: Operation) -> None:
        started, self._started = self._started, None
        if started is not None:
            started.ended(None)  # what it writes may be read before anything is asked of the communicator
        operation.execute()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._busy and (self._waiting or self._closed))
                if not self._waiting:
                    return
                operation = self._waiting.popleft()
                self._busy = True
            self._execute(operation)
            del operation
            with self._changed:
                self._busy = False
                self._changed.notify_all()
