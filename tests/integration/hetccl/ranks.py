"""Ranks as real processes: a scenario is a function that each of them runs."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Ranks", "results"]

SCENARIOS = "tests.integration.hetccl.scenarios"

# Ranks are forked off a process that has nothing but imports torch and hetccl, which takes longer than most tests.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", SCENARIOS])


def _run(scenario: str, rank: int, size: int, arguments: dict[str, Any], file: Path) -> None:
    from tests.integration.hetccl import scenarios

    os.setsid()
    scenarios.run(scenario, rank, size, arguments, file)


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
            process = CONTEXT.Process(target=_run, args=(scenario, rank, size, own, self.files[rank]), daemon=True)
            process.start()
            self.processes.append(process)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):  # it had no time to lead a group of its own
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
        self._folder.cleanup()

    def ready(self, rank: int, deadline: float = 30) -> None:
        """Wait until a rank has called `mark`."""
        mark = self.files[rank].with_suffix(".mark")
        end = time.monotonic() + deadline
        while not mark.exists():
            assert time.monotonic() < end, f"rank {rank} did not get so far"
            ended = self.processes[rank].exitcode
            assert ended is None, f"rank {rank} ended with {ended}"
            time.sleep(0.01)

    def result(self, rank: int, deadline: float = 60) -> Any:
        """What a rank returned; an exception that it raised comes as the exception."""
        end = time.monotonic() + deadline
        while not self.files[rank].exists():
            ended = self.processes[rank].exitcode
            assert ended is None or self.files[rank].exists(), f"rank {rank} ended with {ended} and no result"
            assert time.monotonic() < end, f"rank {rank} has no result after {deadline} s"
            time.sleep(0.01)
        return pickle.loads(self.files[rank].read_bytes())


def results(scenario: str, size: int, deadline: float = 60, **arguments: Any) -> list[Any]:
    """Run to the end: what each rank returned or raised."""
    with Ranks(scenario, size, **arguments) as ranks:
        return [ranks.result(rank, deadline) for rank in range(size)]
