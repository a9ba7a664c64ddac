"""Ranks as real processes: a scenario is a function that each of them runs."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Ranks", "results"]

ROOT = Path(__file__).parents[3]


class Ranks:
    """`size` processes that run `scenario` of scenarios.py with (rank, size, **arguments).

    `each` holds arguments of single ranks. Used as a context: what is left at its end is killed.
    """

    def __init__(
        self,
        scenario: str,
        size: int,
        *,
        each: Sequence[Mapping[str, Any]] = (),
        start: int | None = None,
        **arguments: Any,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hetccl-ranks-")
        self.files = [Path(self._folder.name) / str(rank) for rank in range(size)]
        self.processes = []
        for rank in range(size if start is None else start):
            own = {**arguments, **(each[rank] if each else {})}
            task = pickle.dumps((scenario, rank, size, own)).hex()
            command = [sys.executable, "-m", "tests.integration.hetccl.scenarios", task, str(self.files[rank])]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            self.processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True))

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._folder.cleanup()

    def ready(self, rank: int, deadline: float = 30) -> None:
        """Wait until a rank has called `mark`."""
        mark = self.files[rank].with_suffix(".mark")
        end = time.monotonic() + deadline
        while not mark.exists():
            assert time.monotonic() < end, f"rank {rank} did not get so far"
            assert self.processes[rank].poll() is None, f"rank {rank} ended with {self.processes[rank].returncode}"
            time.sleep(0.01)

    def result(self, rank: int, deadline: float = 60) -> Any:
        """What a rank returned; an exception that it raised comes as the exception."""
        end = time.monotonic() + deadline
        while not self.files[rank].exists():
            ended = self.processes[rank].poll()
            assert ended is None or self.files[rank].exists(), f"rank {rank} ended with {ended} and no result"
            assert time.monotonic() < end, f"rank {rank} has no result after {deadline} s"
            time.sleep(0.01)
        return pickle.loads(self.files[rank].read_bytes())


def results(scenario: str, size: int, deadline: float = 60, **arguments: Any) -> list[Any]:
    """Run to the end: what each rank returned or raised."""
    with Ranks(scenario, size, **arguments) as ranks:
        return [ranks.result(rank, deadline) for rank in range(size)]
