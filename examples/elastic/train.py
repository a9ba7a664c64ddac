"""Training that goes on from its last checkpoint, with however many processes there are, in plain PyTorch.

    torchrun --nproc-per-node 2 train.py --checkpoint FILE

The samples of a step depend on the step alone, so that runs of any sizes and interruptions see the same global batches.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 32


def batch(step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The global batch of a step: points (size, FEATURES) and values (size, 1), float32."""
    points = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(step))
    return points, points.sum(dim=1, keepdim=True).sin()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="a file on storage that all pods share")
    parser.add_argument("--steps", type=int, default=400, help="optimizer steps (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=120, help="samples a step over all processes (default: %(default)s)"
    )
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each step (default: none)")
    args = parser.parse_args()
    stopping: list[int] = []

    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    if rank == 0:
        print(f"world {world} begins at step {step}", flush=True)

    leaving = torch.zeros(1, device=device)
    while step < args.steps and not leaving:
        points, values = (part.to(device).tensor_split(world)[rank] for part in batch(step, args.batch))
        # Parts may differ by a sample: each counts by its samples, and DDP takes the mean over the ranks.
        loss = (model(points) - values).square().sum() * world / args.batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(args.pause)
        # All ranks leave after the same step, once one of them was told to.
        leaving.fill_(len(stopping))
        dist.all_reduce(leaving)
        if rank == 0 and (leaving or step % 10 == 0 or step == args.steps):
            print(f"step {step} loss {loss.item() / world:.6f}", flush=True)
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, args.checkpoint.with_suffix(".new"))
            args.checkpoint.with_suffix(".new").replace(args.checkpoint)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(0 if step == args.steps else 128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
