"""The communicator without torch.distributed, as a launcher starts it."""

import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.integration.hetccl.torch_ranks import plain

ROOT = Path(__file__).parents[3]
HEAT = ROOT / "examples" / "communicator" / "heat.py"


def launched(size: int, *arguments: str) -> list[str]:
    """What each of `size` ranks of the example printed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, HEAT, *arguments],
            env=plain(
                RANK=str(rank),
                WORLD_SIZE=str(size),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                NCCL_SOCKET_IFNAME="lo",
                PYTHONPATH=str(ROOT),
                HETCCL_TRACE_FILE="",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, said
    return [out for out, _ in said]


def figures(said: Sequence[str]) -> list[str]:
    """Of rank 0, which alone prints."""
    assert not any(said[1:])
    found = re.search(r"heat (\S+), last change (\S+)", said[0])
    assert found, said
    return list(found.groups())


def test_the_example_gives_the_same_on_any_number_of_ranks() -> None:
    alone = figures(launched(1, "--points", "50"))
    assert alone[0] == "100.000000"
    assert figures(launched(3, "--points", "50")) == alone, "uneven pieces"
