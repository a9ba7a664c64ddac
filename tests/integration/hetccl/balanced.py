"""A plain DDP loop whose ranks are of unequal speed: python -m tests.integration.hetccl.balanced FOLDER LOOP...

Nothing in it knows of hetccl but the loop "asking", which asks for its shares itself. Writes FOLDER/<rank>.json: for
each loop the samples of each step, and the parameters at the end.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, EVEN, EPOCHS, FEATURES, SLOWER = 333, 8, 2, 16, 6


class Numbered(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """Samples that know their number."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.points = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return index, self.points[index], self.points[index].sum().sin()


class Slow(nn.Module):
    """Work in proportion to the samples, `rounds` times as much as it takes."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1)).double()

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        weight = torch.ones(256, 256)
        for _ in range(self.rounds * len(points)):
            weight = torch.tanh(weight)
        return self.layers(points)[:, 0] + 0 * weight.sum()


def model(rounds: int = 0) -> Slow:
    torch.manual_seed(0)
    return Slow(rounds)


def train(step: Any, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    step.backward()
    optimizer.step()


def loss_of(wanted: torch.Tensor, found: torch.Tensor, summed: bool, whole: int) -> torch.Tensor:
    if summed:  # normalised by the script, over the samples of all ranks
        return nn.functional.mse_loss(found, wanted, reduction="sum") * dist.get_world_size() / whole
    return nn.functional.mse_loss(found, wanted)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("loops", nargs="+", choices=["plain", "workers", "sum", "asking"])
    args = parser.parse_args()
    dist.init_process_group("nccl")
    result = {loop: run(loop) for loop in args.loops}
    (args.folder / f"{dist.get_rank()}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def run(loop: str) -> dict[str, Any]:
    world = dist.get_world_size()
    ddp = DistributedDataParallel(model(SLOWER if os.environ["HETCCL_POOL"] == "amd" else 1))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = Numbered()
    seen: list[list[int]] = []
    if loop == "asking":
        asking(ddp, optimizer, data, seen)
    else:
        sampler = DistributedSampler(data, seed=7)
        loader = DataLoader(data, batch_size=EVEN, sampler=sampler, num_workers=2 if loop == "workers" else 0)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            ddp.train()
            for numbers, points, wanted in loader:
                total = whole(len(seen), world)
                seen.append(numbers.tolist())
                train(loss_of(wanted, ddp(points), loop == "sum", total), optimizer)
            ddp.eval()
            with torch.no_grad():  # an evaluation is nobody's but the script's
                assert max(len(numbers) for numbers, _, _ in loader) == EVEN
    return {"seen": seen, "parameters": [parameter.flatten().tolist() for parameter in ddp.parameters()]}


def asking(ddp: nn.Module, optimizer: torch.optim.Optimizer, data: Numbered, seen: list[list[int]]) -> None:
    """Batches drawn by the loop: rank r of n has samples of its own, as from a stream."""
    from hetccl.balance import Balance

    balance, drawn = Balance(samples=EVEN), 0
    for _ in range(30):
        numbers = [(dist.get_rank() + dist.get_world_size() * (drawn + i)) % SAMPLES for i in range(balance.size())]
        drawn += len(numbers)
        seen.append(numbers)
        _, points, wanted = torch.utils.data.default_collate([data[number] for number in numbers])
        train(balance.weigh(nn.functional.mse_loss(ddp(points), wanted)), optimizer)


def whole(step: int, world: int) -> int:
    """The samples of all ranks in a step: the last one of an epoch has what is left, padded to go round."""
    padded = -(-SAMPLES // world) * world
    steps = -(-padded // (EVEN * world))
    return min(EVEN * world, padded - (step % steps) * EVEN * world)


def alone(batches: list[list[int]]) -> list[torch.Tensor]:
    """The parameters that one process ends with that is given these batches."""
    one = model()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.05)
    data = Numbered()
    for batch in batches:
        _, points, wanted = torch.utils.data.default_collate([data[number] for number in batch])
        train(nn.functional.mse_loss(one(points), wanted), optimizer)
    return [parameter.detach().flatten() for parameter in one.parameters()]


if __name__ == "__main__":
    main()
