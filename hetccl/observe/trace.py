"""When the flight recorder is written, and where to: on an error, on a signal, when something is written to a pipe."""

import contextlib
import itertools
import logging
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from hetccl.observe.dumps import as_json, as_pickle, document
from hetccl.observe.recorder import recorder
from hetccl.settings import TraceSettings

__all__ = ["configure", "dump", "dump_soon", "settle"]

logger = logging.getLogger("hetccl")

WRITE_SECONDS = 5.0
"""How long an error waits for its dump to be written."""


class _State:
    settings = TraceSettings()
    rank = 0
    listening = False
    writing: threading.Thread | None = None
    lock = threading.Lock()
    asked = itertools.count(1)
    written = 0
    """The number of the newest request that was carried out: threads come to it in any order, and the newest counts."""


def configure(settings: TraceSettings, rank: int) -> None:
    """From now on dump as `settings` say, as rank `rank` of the world. What cannot be had is logged, and training goes
    on without it. Call it in the main thread where there is a signal."""
    _State.settings, _State.rank = settings, rank
    recorder.resize(settings.size)
    if _State.listening or not (settings.pipe or settings.signal):
        return
    _State.listening = True
    selector = selectors.DefaultSelector()
    with contextlib.suppress(_Unavailable):
        if settings.signal:
            _on_signal(settings.signal, selector)
    with contextlib.suppress(_Unavailable):
        if settings.pipe:
            _on_pipe(Path(f"{settings.pipe}{rank}.pipe"), selector)
    if selector.get_map():
        threading.Thread(target=_listen, args=(selector,), name="hetccl-trace", daemon=True).start()


def dump(reason: str) -> Path | None:
    """Write what is recorded. Returns the file, or None where there is to be none, or it cannot be written."""
    return _write(reason, next(_State.asked))


def _write(reason: str, number: int) -> Path | None:
    settings, rank = _State.settings, _State.rank
    if not settings.file or settings.size == 0:
        return None
    as_text = settings.file.endswith(".json")
    path = Path(f"{settings.file.removesuffix('.json')}{rank}{'.json' if as_text else ''}")
    with _State.lock:
        if number < _State.written:
            return path
        _State.written = number
        whole = document(recorder.entries(), rank, reason)
        try:
            _replace(path, as_json(whole) if as_text else as_pickle(whole))
        except OSError as error:
            logger.warning("the last calls could not be written to %s (HETCCL_TRACE_FILE): %s", path, error.strerror)
            return None
    hint = "" if as_text else f"; all ranks' dumps together are read by: torchfrtrace {path.parent}"
    logger.info("wrote the last %d calls to %s%s", len(whole["entries"]), path, hint)
    return path


def dump_soon(reason: str) -> None:
    """As `dump`, in another thread: the caller may be the one that keeps this rank alive."""
    if not _State.settings.file or _State.settings.size == 0:
        return
    # Not a daemon: a process that ends because of the error writes it first.
    _State.writing = threading.Thread(target=_write, args=(reason, next(_State.asked)), name="hetccl-dump")
    with contextlib.suppress(RuntimeError):  # the interpreter ends, or has no threads left
        _State.writing.start()


def settle() -> None:
    """Wait for what `dump_soon` began, WRITE_SECONDS at most."""
    writing = _State.writing
    if writing is not None and writing.ident is not None and writing is not threading.current_thread():
        writing.join(WRITE_SECONDS)


class _Unavailable(Exception):
    """It was logged."""


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all, whatever stands there; a link is not followed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}.part")  # a name that the analyser does not take for a dump
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    part.replace(path)


def _on_signal(name: str, selector: selectors.BaseSelector) -> None:
    """Python runs a handler when the main thread next runs Python code, and that one may wait in a collective: so it is
    the byte that Python's own handler writes at once that counts."""
    number = signal.Signals[name]
    reader, writer = socket.socketpair()
    for each in (reader, writer):
        each.setblocking(False)
    try:
        other = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if other != -1:
            signal.set_wakeup_fd(other)
            raise ValueError("another library uses Python's wakeup descriptor")
        if not callable(signal.getsignal(number)):
            signal.signal(number, lambda *_: None)
    except ValueError as error:
        reader.close()
        writer.close()
        logger.warning("no dump on %s (HETCCL_TRACE_SIGNAL): %s", name, error)
        raise _Unavailable from None
    _kept.append(writer)

    def read() -> bool:
        return number in reader.recv(4096)

    selector.register(reader, selectors.EVENT_READ, (read, f"{name} came"))


def _on_pipe(path: Path, selector: selectors.BaseSelector) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.is_fifo():
            os.mkfifo(path, 0o600)
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        logger.warning("no dump by %s (HETCCL_TRACE_PIPE): %s", path, error.strerror)
        raise _Unavailable from None
    selector.register(
        descriptor, selectors.EVENT_READ, (lambda: bool(os.read(descriptor, 4096)), f"{path} was written")
    )


_kept: list[socket.socket] = []


def _listen(selector: selectors.BaseSelector) -> None:
    while True:
        for key, _ in selector.select():
            asked: Callable[[], bool]
            asked, reason = key.data
            with contextlib.suppress(BlockingIOError):
                if asked():
                    dump(reason)
