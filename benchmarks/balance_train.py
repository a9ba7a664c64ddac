"""A data parallel training loop in plain PyTorch, measured: what benchmarks/balance.py runs in each rank.

    torchrun balance_train.py --quota FILE ...

Prints one JSON line on rank 0: samples a second over all ranks once the first steps are over, and the share of a step
that communication takes when nothing runs beside it.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=Path, help="cgroup file that takes a thread under the rank's CPU quota")
    parser.add_argument("--even", type=int, help="samples of each rank in a step, all alike")
    parser.add_argument("--width", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--warm-up", type=int)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(*(nn.Sequential(nn.Linear(args.width, args.width), nn.GELU()) for _ in range(args.layers))),
        bucket_cap_mb=0.25,  # a model as small as this one would have a single bucket, and nothing beside it
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = args.even * world * (args.warm_up + args.steps)
    data = TensorDataset(torch.randn(1024, args.width)[torch.arange(samples) % 1024])
    loader = DataLoader(data, batch_size=args.even, sampler=DistributedSampler(data, shuffle=False))
    gradients = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    alone = communication(gradients)
    # The threads that carry the wires are there by now, and stay outside the quota.
    args.tasks.write_text(str(threading.get_native_id()))

    begun = 0.0
    for step, (points,) in enumerate(loader):
        if step == args.warm_up:
            dist.barrier()
            begun = time.perf_counter()
        loss = nn.functional.mse_loss(model(points), points)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    seconds = time.perf_counter() - begun
    if dist.get_rank() == 0:
        rate = args.even * world * args.steps / seconds
        print(json.dumps({"samples_per_s": rate, "communication": alone * args.steps / seconds}), flush=True)
    dist.destroy_process_group()


def communication(gradients: torch.Tensor) -> float:
    """Seconds of an all_reduce of all gradients, in buckets as DDP makes them, when nothing else is done."""
    buckets = gradients.split(2**18 // 4)
    times = []
    for _ in range(5):
        dist.barrier()
        begun = time.perf_counter()
        for bucket in buckets:
            dist.all_reduce(bucket)
        times.append(time.perf_counter() - begun)
    return sorted(times)[2]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
