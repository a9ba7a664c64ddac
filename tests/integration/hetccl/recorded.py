"""What ranks do for the tests of the flight recorder."""

import time
from pathlib import Path

import torch

from hetccl.errors import CollectiveError
from hetccl.observe import trace
from hetccl.settings import TraceSettings
from tests.integration.hetccl import scenarios
from tests.integration.hetccl.misuse import together
from tests.integration.hetccl.scenarios import join, store


def recorded(rank: int, size: int, *, folder: str) -> str:
    """Every collective once, and a dump; then a call to which the last rank comes late; then one that differs."""
    meeting = store(rank, size)
    _configure(folder, "all", rank)
    group = join(rank, size, where=meeting)
    counts = [1 + r for r in range(size)]
    whole, own = torch.zeros(sum(counts)), torch.zeros(counts[rank])
    even = torch.zeros(2 * size)
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        group.all_reduce(torch.zeros(5, dtype=dtype))
    group.reduce(torch.zeros(5), 1, "max")
    group.broadcast(torch.zeros(5), 2)
    group.all_gather(even, torch.zeros(2))
    group.all_gather(whole, own, counts)
    group.reduce_scatter(torch.zeros(2), even)
    group.reduce_scatter(own, whole, counts=counts)
    group.gather(whole if rank == 1 else None, own, 1, counts)
    group.scatter(torch.zeros(2), even if rank == 0 else None, 0)
    group.all_to_all(torch.zeros(sum(range(size))), torch.zeros(rank * size), list(range(size)), [rank] * size)
    if rank == 0:
        group.send(torch.zeros(7), 2)
        group.recv(torch.zeros(3), 2)
    if rank == 2:
        group.recv(torch.zeros(7), 0)
        group.send(torch.zeros(3), 0)
    with group.starting() as handles:
        group.all_reduce(torch.zeros(4))
        group.barrier()
    for handle in handles:
        handle.wait()
    assert trace.dump("a test asks for it") is not None
    together(meeting, size, "all")

    _configure(folder, "late", rank)
    scenarios.mark()
    if rank == size - 1:
        _until(Path(folder, "go"))
    with group.starting() as handles:
        group.all_reduce(torch.zeros(4))
        group.all_reduce(torch.zeros(6))
    for handle in handles:
        handle.wait()

    _configure(folder, "different", rank)
    try:
        group.all_reduce(torch.zeros(8 if rank == 1 else 9))
        group.barrier()
    except CollectiveError as error:
        return str(error)
    return "no error"


def _configure(folder: str, name: str, rank: int) -> None:
    file, pipe = Path(folder, name, "rank_"), Path(folder, "ask_")
    trace.configure(TraceSettings(file=str(file), pipe=str(pipe), signal="SIGUSR2"), rank)


def _until(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} does not come"
        time.sleep(0.01)
