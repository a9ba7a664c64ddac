"""Load balance of plain DDP loops over two pools, one of them slower: the updates are those of one process."""

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils.data.distributed import DistributedSampler

from tests.integration.hetccl.balanced import EPOCHS, EVEN, Numbered, alone
from tests.integration.hetccl.torch_ranks import POOLS, Gang, scenario

RANKS = len(POOLS)
Steps = list[list[list[int]]]
Parameters = list[list[list[float]]]


def run(folder: Path, *loops: str, **options: Any) -> tuple[dict[str, tuple[Steps, Parameters]], str]:
    """Of each loop the samples of each step by rank and the parameters of each rank at the end; what rank 0 said."""
    with Gang([*scenario("balanced", folder), *loops], folder, **options) as gang:
        said = [rank.succeeds() for rank in gang.ranks]
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]
    found = {}
    for loop in loops:
        steps = [list(step) for step in zip(*(result[loop]["seen"] for result in results), strict=True)]
        found[loop] = steps, [result[loop]["parameters"] for result in results]
    return found, said[0]


def expected() -> list[Counter[int]]:
    """The samples of each step over all ranks, as DistributedSampler has them without us."""
    batches = []
    for epoch in range(EPOCHS):
        orders = []
        for rank in range(RANKS):
            sampler = DistributedSampler(Numbered(), RANKS, rank, seed=7)
            sampler.set_epoch(epoch)
            orders.append(list(sampler))
        for begin in range(0, len(orders[0]), EVEN):
            batches.append(Counter(number for order in orders for number in order[begin : begin + EVEN]))
    return batches


def together(steps: Steps) -> list[list[int]]:
    return [[number for part in step for number in part] for step in steps]


def check_update(steps: Steps, parameters: Parameters) -> None:
    """All ranks end with the parameters of one process that is given the same global batches."""
    reference = alone(together(steps))
    for found in parameters:
        for one, other in zip(found, reference, strict=True):
            torch.testing.assert_close(torch.tensor(one, dtype=torch.float64), other, rtol=1e-9, atol=1e-9)


def slow_share(step: list[list[int]]) -> float:
    return len(step[2]) / sum(map(len, step))


def test_auto_gives_the_slow_pool_less_and_updates_as_one_process_does(tmp_path: Path) -> None:
    found, said = run(tmp_path, "plain", "workers", "asking", HETCCL_BALANCE="Auto")
    assert "load balance: from batch" in said
    for loop, (steps, parameters) in found.items():
        check_update(steps, parameters)
        if loop != "asking":
            assert [Counter(batch) for batch in together(steps)] == expected()
        # Other work on the machine may disturb a measurement, but not all of them.
        late = [slow_share(step) for step in steps[len(steps) // 2 :]]
        assert statistics.mean(late) < 0.95 / RANKS, loop
    # Until the first change each rank has what it would have without us, sample for sample.
    sampler = DistributedSampler(Numbered(), RANKS, 0, seed=7)
    assert found["plain"][0][0][0] == list(sampler)[:EVEN]


def test_static_cuts_each_batch_by_the_pools_weights_and_a_script_may_normalise_itself(tmp_path: Path) -> None:
    weights = {"nvidia": {"HETCCL_WEIGHT": "2"}, "amd": {"HETCCL_WEIGHT": "0.8"}}
    found, _ = run(tmp_path, "sum", by_pool=weights, HETCCL_BALANCE="Static", HETCCL_BALANCE_LOSS="Sum")
    steps, parameters = found["sum"]
    assert {tuple(len(part) for part in step) for step in steps if sum(map(len, step)) == 24} == {(10, 10, 4)}
    assert [Counter(batch) for batch in together(steps)] == expected()
    check_update(steps, parameters)
