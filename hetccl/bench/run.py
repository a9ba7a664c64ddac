"""Starts the ranks of a benchmark, gathers what rank 0 measured, prints the table and writes the JSON."""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hetccl
from hetccl.bench.formulas import BUS, bound

__all__ = ["PEERS", "Task", "islands_of", "parse_islands", "parse_sizes", "run"]

PEERS = ("gloo", "openmpi")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Task:
    """What to measure. `islands` are numbers of ranks; on the CPU they are simulated, and called so."""

    op: str
    islands: tuple[int, ...]
    wire: str
    dtype: str
    sizes: tuple[int, ...]
    peers: tuple[str, ...]
    busy: bool

    @property
    def ranks(self) -> int:
        """How many processes."""
        return sum(self.islands)


def parse_sizes(text: str) -> tuple[int, ...]:
    """`4,64K,1M` in bytes. Raises argparse.ArgumentTypeError."""
    found = [re.fullmatch(r"([1-9][0-9]*)([KMG]?)", word) for word in text.upper().split(",")]
    if None in found:
        raise argparse.ArgumentTypeError(f"{text!r} are no sizes: write numbers of bytes, such as 4,64K,1M,1G")
    return tuple(int(word[1]) * UNITS[word[2]] for word in found if word)


def parse_islands(text: str) -> tuple[int, ...]:
    """`2+1` as the sizes of islands. Raises argparse.ArgumentTypeError."""
    if not re.fullmatch(r"[1-9][0-9]*(\+[1-9][0-9]*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} are no islands: write the number of ranks of each, such as 2+1")
    return tuple(int(size) for size in text.split("+"))


def islands_of(islands: tuple[int, ...] | None, ranks: int | None) -> tuple[int, ...]:
    """What `--islands` and `--ranks` say; by default two islands, of half the ranks each.

    Raises RuntimeError where they differ.
    """
    if islands is None:
        whole = 2 if ranks is None else ranks
        return (whole - whole // 2, whole // 2) if whole > 1 else (1,)
    if ranks is not None and sum(islands) != ranks:
        raise RuntimeError(f"--islands {'+'.join(map(str, islands))} are {sum(islands)} ranks, --ranks says {ranks}")
    return islands


def run(task: Task, file: Path | None) -> None:
    """Measure and show. Raises RuntimeError with the ranks' own words where they fail."""
    rows = []
    header = f"{'bytes':>12} {'us':>11} {'torch us':>11} {'algbw GB/s':>11} {'busbw GB/s':>11} {'of bound':>9}"
    header += " busy us    " if task.busy else ""
    print(f"# {task.op}, {task.dtype}, {task.ranks} ranks in islands of {'+'.join(map(str, task.islands))} (simulated)")
    print(header + "".join(f" {peer + ' us':>12} {'ratio':>7}" for peer in task.peers), flush=True)
    for measured in _measure(task):
        row = _row(task, measured)
        rows.append(row)
        line = f"{row['bytes']:>12} {row['us']:>11.1f} {row['torch_us']:>11.1f}"
        line += f" {row['algbw']:>11.2f} {row['busbw']:>11.2f} {row['bound_share']:>9.2f}"
        line += f" {row['busy_us']:>11.1f}" if task.busy else ""
        line += "".join(f" {peer['us']:>12.1f} {peer['ratio']:>7.2f}" for peer in row["peers"].values())
        print(line, flush=True)
    if file is not None:
        file.write_text(json.dumps({"meta": _meta(), "rows": rows}, indent=1) + "\n")


def _measure(task: Task) -> Iterator[dict[str, Any]]:
    vendors = [f"island{number}" for number, size in enumerate(task.islands) for _ in range(size)]
    port = _free_port()
    environment = [
        {
            "HETCCL_VENDOR": vendor,
            "HETCCL_SIMULATE": 1,
            "HETCCL_LOG": "WARNING",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME", "lo"),
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
            "NCCL_SHM_DISABLE": int(task.wire == "tcp"),
        }
        for vendor in vendors
    ]
    described = {"op": task.op, "dtype": task.dtype, "sizes": task.sizes, "peers": task.peers, "busy": task.busy}
    argument = json.dumps({**described, "ranks": task.ranks, "env": environment})
    worker = [sys.executable, "-m", "hetccl.bench.worker", argument]
    commands = [[*_mpirun(task), *worker]] if "openmpi" in task.peers else [worker] * task.ranks
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]
    try:
        assert started[0].stdout is not None
        for line in started[0].stdout:
            if line.startswith("{"):
                yield json.loads(line)
        codes = [process.wait(timeout=60) for process in started]
        if any(codes):
            raise RuntimeError(f"the ranks ended with {codes}; what they said is above")
    finally:
        for process in started:
            process.kill()


def _mpirun(task: Task) -> list[str]:
    """Open MPI at its best here: unbound like the others, and giving the core away where ranks share cores."""
    program = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        raise RuntimeError("the peer openmpi needs mpirun and mpi4py: pip install 'hetccl[bench]'")
    command = [program, "-n", str(task.ranks), "--oversubscribe", "--bind-to", "none"]
    if os.getuid() == 0:
        command.append("--allow-run-as-root")
    if task.ranks >= (os.cpu_count() or 1):
        command += ["--mca", "mpi_yield_when_idle", "1"]
    if task.wire == "tcp":
        command += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    return command


def _row(task: Task, measured: dict[str, Any]) -> dict[str, Any]:
    seconds, size = measured["us"] / 1e6, measured["bytes"]
    busy = {"busy_us": measured["busy_us"]} if task.busy else {}
    return {
        "op": task.op,
        "bytes": size,
        "dtype": task.dtype,
        "ranks": task.ranks,
        "islands": "+".join(map(str, task.islands)),
        "wire": measured["wire"],
        "us": measured["us"],
        "torch_us": measured["torch_us"],
        **busy,
        "algbw": size / seconds / 1e9,
        "busbw": size / seconds / 1e9 * BUS[task.op](task.ranks),
        "bound_share": bound(task.op, task.ranks, measured["copy_us"]) / measured["us"],
        "peers": {peer: {"us": measured[peer], "ratio": measured[peer] / measured["us"]} for peer in task.peers},
    }


def _meta() -> dict[str, Any]:
    import torch  # noqa: PLC0415 - a second, and only the file needs it

    commit = subprocess.run(
        ["git", "-C", Path(hetccl.__file__).parent, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "gpus": [],
        "versions": {"hetccl": hetccl.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "simulated": ["islands"],
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
