"""One rank of a benchmark: `python -m hetccl.bench.worker`, started by hetccl.bench.run, with its task as JSON."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from hetccl.bench import contenders
from hetccl.bench.cases import CASES

ROUNDS = 7
ROUND_SECONDS = 0.12
MOST_CALLS = 5000
WORK_CHECK = 1000
"""Iterations of pure Python between two looks at whether a call is done, in a busy run."""


def main() -> None:
    task = json.loads(sys.argv[1])
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])
    ranks = task["ranks"]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), **{k: str(v) for k, v in task["env"][rank].items()}}
    torch.set_num_threads(1)
    from hetccl.inject import activate  # noqa: PLC0415 - after the environment is there

    activate()
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    world: Any = dist.group.WORLD
    group = dist.new_group(backend="gloo") if "gloo" in task["peers"] else None
    for size in task["sizes"]:
        row = _measure(task, world, group, size)
        if rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def _measure(task: dict[str, Any], world: Any, group: Any, size: int) -> dict[str, Any]:
    name: str = task["op"]
    dtype = getattr(torch, task["dtype"])
    buffers = CASES[name](max(1, size // dtype.itemsize), task["ranks"], dtype)
    calls: dict[str, Callable[[], object]] = {
        "us": contenders.ours(world.communicator, name, buffers),
        "torch_us": contenders.through_torch(world, name, buffers),
        "copy_us": contenders.copy(buffers),
    }
    if task["busy"]:
        start = contenders.through_torch(world, name, buffers, wait=False)
        calls["busy_us"] = lambda: _busy(start())
    if "gloo" in task["peers"]:
        calls["gloo"] = contenders.gloo(group, name, buffers)
    if "openmpi" in task["peers"]:
        calls["openmpi"] = contenders.openmpi(name, buffers)
    counts = {key: _agree(world, _calls_a_round(call)) for key, call in calls.items()}
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for key, call in calls.items():
            world.communicator.barrier()
            begin = time.perf_counter()
            for _ in range(counts[key]):
                call()
            times[key].append((time.perf_counter() - begin) / counts[key] * 1e6)
    moved = max(buffers.input.nbytes, buffers.output.nbytes)
    return {"bytes": moved, "wire": world.communicator.wires, **{k: statistics.median(v) for k, v in times.items()}}


def _calls_a_round(call: Callable[[], object]) -> int:
    call()
    begin = time.perf_counter()
    call()
    call()
    return max(1, min(MOST_CALLS, int(ROUND_SECONDS / ((time.perf_counter() - begin) / 2 + 1e-9))))


def _agree(world: Any, count: int) -> int:
    """Rank 0's number, so that all ranks make the same calls."""
    number = torch.tensor([count])
    world.communicator.broadcast(number, 0)
    return int(number)


def _busy(work: Any) -> None:
    """Pure Python in the main thread until a call is done: it holds the GIL as a training script does."""
    total = 0
    while not work.is_completed():
        for number in range(WORK_CHECK):
            total += number
    work.wait()


if __name__ == "__main__":
    main()
