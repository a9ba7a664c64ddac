"""Ranks of a job on this machine, as the operator would start them: two pools, uneven, with simulated GPUs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from torch.distributed import TCPStore

ROOT = Path(__file__).parents[3]
POOLS = ("nvidia", "nvidia", "amd")
TOKEN = b"the token of this attempt"


def plain(**more: str) -> dict[str, str]:
    """This environment without anything that tells Python or a rank of us."""
    ours = ("HETCCL_", "PET_", "TORCHELASTIC_", "NCCL_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def of_pool(pool: str, **more: str) -> dict[str, str]:
    """The environment of a process of a pool, whose vendor has the pool's name."""
    return plain(
        HETCCL_VENDOR=pool,
        HETCCL_POOL=pool,
        HETCCL_JOB="tests/job/0",
        HETCCL_SIMULATE="1",
        NCCL_SOCKET_IFNAME="lo",
        **more,
    )


class Process:
    """A process whose output goes to a file, killed with its children where it is left running."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def said(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def ends(self, deadline: float = 60) -> int:
        """Its exit code. Fails where it still runs after `deadline` seconds."""
        try:
            return self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._process.args!r} still runs after {deadline} s:\n{self.said}") from None

    def succeeds(self, deadline: float = 60) -> str:
        """What it wrote until it ended well."""
        code = self.ends(deadline)
        assert code == 0, f"exit code {code}:\n{self.said}"
        return self.said

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Gang:
    """The ranks of a job, each a process that runs `command`. They meet in a store that lives here, as torchrun's."""

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        pools: Sequence[str] = POOLS,
        by_pool: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        **more: str,
    ) -> None:
        size = len(pools)
        self._store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
        token = folder / "token"
        token.write_bytes(TOKEN)
        self.ranks = [
            Process(
                command,
                of_pool(
                    pool,
                    HETCCL_TOKEN_FILE=str(token),
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE=str(size),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(self._store.port),
                    TORCHELASTIC_USE_AGENT_STORE="True",
                    TORCHELASTIC_RESTART_COUNT="0",
                    **{"HETCCL_TRACE_FILE": str(folder / "trace" / "rank_"), **more, **by_pool.get(pool, {})},
                ),
                folder / f"rank{rank}.log",
            )
            for rank, pool in enumerate(pools)
        ]

    def __enter__(self) -> "Gang":
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()


def scenario(name: str, folder: Path) -> list[str | Path]:
    """The command of a rank that runs a module of this folder; it writes its results to `folder`."""
    return [sys.executable, "-m", f"tests.integration.hetccl.{name}", folder]


def until(condition: object, deadline: float = 30) -> None:
    """Wait for a callable to be true."""
    assert callable(condition)
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"{condition} is not true after {deadline} s"
        time.sleep(0.02)
