"""A replica: one planned pod, run as a tree of processes on this machine."""

import asyncio
import ctypes
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MARK = "HETTRAIN_REPLICA"
"""Names the replica in the environment of its processes: torchrun gives its workers sessions of their own."""

MESSAGE_BYTES, MESSAGE_LINES = 2048, 80
"""What the kubelet keeps of a failed container's log as its termination message."""

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make processes whose parent dies children of this one, so that a killed replica's processes are still found."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Replica:
    """The processes of one pod. `lines` gets each line of output, stdout and stderr together, without its newline."""

    def __init__(self, name: str, lines: Callable[[str], None]) -> None:
        self.name = name
        self._lines = lines
        self._tail: deque[str] = deque(maxlen=MESSAGE_LINES)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
        """Run to the end and return the exit code as a kubelet reports it: 128 + n after signal n.

        Whatever the main process leaves behind is killed, as it would be with its container. A command that cannot be
        started is exit code 127 (126 where it is no program), with the reason as its output.
        """
        loop = asyncio.get_running_loop()
        # A pipe of our own: asyncio's would make wait() last until whatever the main process left behind closes it.
        read_end, write_end = os.pipe()
        output = asyncio.StreamReader(limit=1 << 20)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(read_end, "rb")
        )
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env={**environment, MARK: self.name},
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        except OSError as error:
            transport.close()
            self._line(f"{command[0]}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        finally:
            os.close(write_end)
        reader = asyncio.create_task(self._read(output))
        try:
            code = await self._process.wait()
        finally:
            self.signal_all(signal.SIGKILL)
        await reader
        transport.close()
        return code if code >= 0 else 128 - code

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the limit: its buffer was dropped, the rest follows
                line = b"(a line of more than 1 MiB)\n"
            if not line:
                return
            self._line(line.decode(errors="replace").rstrip("\r\n"))

    def _line(self, line: str) -> None:
        self._tail.append(line)
        self._lines(line)

    @property
    def message(self) -> str:
        """The end of the output, as much as a termination message holds."""
        return "\n".join(self._tail).encode()[-MESSAGE_BYTES:].decode(errors="replace")

    def terminate(self) -> None:
        """SIGTERM to the main process alone, as a kubelet does."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process of this replica that still runs."""
        for pid in _descendants(os.getpid()):
            if _marked(pid, self.name):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _marked(pid: int, name: str) -> bool:
    try:
        return f"{MARK}={name}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
