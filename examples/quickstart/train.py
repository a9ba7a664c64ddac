"""Data-parallel training of a small classifier on synthetic data, in plain PyTorch.

    python train.py                       one process
    torchrun --nproc-per-node 2 train.py  two

Every process count sees the same global batches, so the loss curves agree up to rounding.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FEATURES, CLASSES, SAMPLES = 64, 10, 9600


def synthetic_dataset() -> TensorDataset:
    """Points (SAMPLES, FEATURES) float32 labelled (SAMPLES,) int64 by a fixed random map, the same everywhere."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = (points @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(dim=1)
    return TensorDataset(points, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=96, help="samples a step over all processes (default: %(default)s)"
    )
    args = parser.parse_args()

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if args.batch % world:
        parser.error(f"--batch {args.batch} does not divide by {world} processes")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl")

    torch.manual_seed(0)
    # Smooth activations: at the kinks of others rounding alone parts two loss curves sooner or later.
    model: nn.Module = nn.Sequential(
        nn.Linear(FEATURES, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, CLASSES)
    )
    model = model.to(device)
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    dataset = synthetic_dataset()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=False)
    loader = DataLoader(dataset, batch_size=args.batch // world, sampler=sampler)

    step = 0
    while step < args.steps:
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            mean = loss.detach().clone()
            if world > 1:
                dist.all_reduce(mean)
                mean /= world
            step += 1
            if rank == 0:
                print(f"step {step} loss {mean.item():.9f}", flush=True)
            if step == args.steps:
                break

    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
