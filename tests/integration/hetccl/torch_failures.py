"""What the ranks of a job see when something goes wrong: one failure after the other, each in a world of its own.

`python -m tests.integration.hetccl.torch_failures FOLDER` is a rank; it writes what each step gave to FOLDER.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _DistBackendError as DistBackendError

from hetccl.torch import process_group

LIMIT = timedelta(seconds=30)


def error_of(call: Any) -> str:
    """The text of the error that torch's users catch."""
    try:
        call()
    except DistBackendError as error:
        return str(error)
    return "no error"


def everybody_was_here(key: str, size: int) -> None:
    """Wait in torch's store, which has nothing to do with the group."""
    store = dist.PrefixStore("tests", dist.distributed_c10d._get_default_store())
    store.add(key, 1)
    while store.add(key, 0) < size:
        time.sleep(0.01)


def another_size(rank: int, size: int) -> list[str]:
    tensor = torch.ones(5000 if rank == 1 else 4000)
    work = dist.all_reduce(tensor, async_op=True)
    said = [error_of(work.wait)]
    try:
        work.get_future().wait()
    except Exception as error:
        said.append(str(error))
    said.append(error_of(dist.barrier))
    assert work.is_completed()
    assert not work.is_success()
    return said


def late(rank: int, size: int) -> list[str]:
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    said = "" if rank == 2 else error_of(lambda: dist.all_reduce(torch.ones(3)))
    everybody_was_here("late", size)
    return [said or error_of(lambda: dist.all_reduce(torch.ones(3)))]


def late_for_a_message(rank: int, size: int) -> list[str]:
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    said = error_of(lambda: dist.recv(torch.ones(3), 2)) if rank == 0 else ""
    everybody_was_here("message", size)
    return [said]


def impatient(rank: int, size: int) -> list[str]:
    """wait() with a limit of its own gives up; the operation goes on."""
    if rank == 2:
        everybody_was_here("impatient", size)
        dist.all_reduce(torch.ones(3))
        return ["no error"]
    work = dist.all_reduce(torch.ones(3), async_op=True)
    said = error_of(lambda: work.wait(timedelta(seconds=0.2)))
    everybody_was_here("impatient", size)
    work.wait()
    return [said]


def aborted(rank: int, size: int) -> list[str]:
    dist.barrier()
    if rank == 1:
        dist.group.WORLD.abort()
    said = error_of(lambda: dist.all_reduce(torch.ones(3)))
    everybody_was_here("aborted", size)
    return [said]


def destroyed_in_flight(rank: int, size: int) -> list[str]:
    """Rank 0 gives up while an operation waits for ranks that never come."""
    process_group.DRAIN_SECONDS = 0.2
    said = ""
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        dist.destroy_process_group()
        said = error_of(work.wait)
    return [said]


def lost(rank: int, size: int) -> list[str]:
    """The last rank is killed; a forked child of it holds all its descriptors."""
    dist.barrier()
    if rank == 2:
        if os.fork() == 0:
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
    return [error_of(lambda: [dist.all_reduce(torch.ones(1000)) for _ in range(1000)])]


STEPS = (another_size, late, late_for_a_message, impatient, aborted, destroyed_in_flight, lost)


def main() -> None:
    torch.set_num_threads(1)
    outcome: dict[str, list[str]] = {}
    for step in STEPS:
        dist.init_process_group("nccl", timeout=LIMIT)
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.all_reduce(torch.ones(10))
        outcome[step.__name__] = step(rank, size)
        if dist.is_initialized():
            dist.destroy_process_group()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
