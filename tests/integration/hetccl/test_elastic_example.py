"""examples/elastic: training stopped by SIGTERM goes on from its checkpoint with another number of processes."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import torch

from tests.integration.hetccl.torch_ranks import ROOT, of_pool, until

TRAIN = ROOT / "examples" / "elastic" / "train.py"
STEPS = 60


def torchrun(folder: Path, name: str, processes: int, *options: str) -> "subprocess.Popen[bytes]":
    """One pod of the job as torchrun starts it, its output in FOLDER/NAME."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--nnodes=1"]
    where = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    script = [TRAIN, "--checkpoint", folder / "checkpoint", "--steps", str(STEPS), *options]
    with (folder / name).open("wb") as log:
        return subprocess.Popen([*command, *where, *script], env=of_pool("amd"), stdout=log, stderr=log)


def losses(log: Path) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", log.read_text(), re.M)}


def test_a_gang_of_another_size_goes_on_from_where_the_last_one_was_told_to_leave(tmp_path: Path) -> None:
    first = torchrun(tmp_path, "three", 3, "--pause", "0.1")
    until(lambda: losses(tmp_path / "three"), 60)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) != 0
    left = max(losses(tmp_path / "three"))
    assert left < STEPS
    assert torchrun(tmp_path, "two", 2).wait(60) == 0, (tmp_path / "two").read_text()
    said = (tmp_path / "two").read_text()
    assert f"world 2 begins at step {left}" in said
    assert max(losses(tmp_path / "two")) == STEPS
    whole = tmp_path / "whole"
    whole.mkdir()
    assert torchrun(whole, "one", 1).wait(60) == 0
    resumed, straight = (torch.load(folder / "checkpoint")["model"] for folder in (tmp_path, whole))
    for name, tensor in straight.items():
        torch.testing.assert_close(resumed[name], tensor, rtol=1e-4, atol=1e-5)
