"""Every call of torch.distributed that "nccl" serves, over ranks of two pools."""

import json
import socket
from pathlib import Path

import pytest

from tests.integration.hetccl.torch_calls import CASES
from tests.integration.hetccl.torch_ranks import Gang, scenario


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What became of each case, by rank: empty, or the traceback."""
    folder: Path = tmp_path_factory.mktemp("calls")
    with Gang(scenario("torch_calls", folder), folder, HETCCL_REPORT_PORT=str(free_port())) as gang:
        for rank in gang.ranks:
            rank.ends(90)
        results = [folder / f"{number}.json" for number in range(len(gang.ranks))]
        assert all(result.exists() for result in results), [rank.said for rank in gang.ranks]
    return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize("case", CASES)
def test_over_two_pools(case: str, outcomes: list[dict[str, str]]) -> None:
    for rank, outcome in enumerate(outcomes):
        assert outcome.get(case, "not reached") == "", f"rank {rank}"
