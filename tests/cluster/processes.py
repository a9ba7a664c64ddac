"""Programs that outlive the call that starts them: a log and a pid file each, so that anybody can stop them later."""

import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path


class StartError(RuntimeError):
    """A program did not come up; the message ends with its last log lines."""


def start_ticks(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot: with the pid it names a process for good."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def poll(what: str, condition: Callable[[], bool], timeout: float, interval: float = 0.05) -> None:
    """Wait until condition() is true; TimeoutError naming what after timeout seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(interval)


class Processes:
    """The programs of one directory: DIR/logs/NAME.log, DIR/pids/NAME."""

    def __init__(self, directory: Path, path: Path) -> None:
        """path goes first on the programs' PATH."""
        self.logs, self.pids, self.path = directory / "logs", directory / "pids", path

    def start(self, name: str, *argv: object, env: dict[str, str] | None = None) -> None:
        """Start a program in a session of its own."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.pids.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [str(argument) for argument in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", **(env or {})},
            )
        (self.pids / name).write_text(f"{process.pid} {start_ticks(process.pid)}")

    def alive(self, name: str) -> bool:
        """Whether the program that was started under this name still runs."""
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """Its pid while it runs."""
        try:
            pid, ticks = (self.pids / name).read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if str(start_ticks(int(pid))) == ticks else None

    def names(self) -> list[str]:
        """All programs, in the order in which they were started."""
        files = self.pids.glob("*") if self.pids.exists() else []
        return [file.name for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)]

    def await_answer(
        self, name: str, url: str, context: ssl.SSLContext | None = None, expect: str = "", timeout: float = 90
    ) -> None:
        """Wait until url answers 2xx with expect in its body; StartError when it does not, or the program ends."""
        last = "no answer"

        def answered() -> bool:
            nonlocal last
            try:
                with urllib.request.urlopen(url, context=context, timeout=2) as answer:
                    body = answer.read().decode()
            except (OSError, ssl.SSLError) as error:
                last = str(error)
            else:
                if expect in body:
                    return True
                last = f"the answer lacks {expect!r}"
            if not self.alive(name):
                raise TimeoutError("it ended")
            return False

        try:
            poll(f"an answer of {name}", answered, timeout)
        except TimeoutError as error:
            raise StartError(
                f"{name} did not come up at {url} ({error}; last: {last})\n{self.log_tail(name)}"
            ) from None

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The last lines that a program wrote."""
        return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def stop(self, name: str, grace: float = 15) -> None:
        """SIGTERM, and SIGKILL after grace seconds; returns when it is gone."""
        for sent, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            if (pid := self.pid(name)) is None:
                break
            os.kill(pid, sent)
            try:
                poll(f"the end of {name}", lambda: not self.alive(name), seconds)
            except TimeoutError:
                continue
        (self.pids / name).unlink(missing_ok=True)
