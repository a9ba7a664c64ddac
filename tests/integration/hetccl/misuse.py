"""What ranks do when they do not agree: many cases one after the other in the same processes, a group for each."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore

from hetccl import bootstrap
from hetccl.communicator import Communicator
from hetccl.errors import HetcclError, ResourceError
from hetccl.wires import endpoint
from tests.integration.hetccl import scenarios
from tests.integration.hetccl.scenarios import join, store

Said = tuple[str, str]
"""The type of an error and its text."""


def together(meeting: TCPStore, size: int, name: str) -> None:
    """Wait until all ranks are here, by a way that has nothing to do with groups."""
    meeting.add(f"together/{name}", 1)
    deadline = time.monotonic() + 30
    while meeting.add(f"together/{name}", 0) < size:
        assert time.monotonic() < deadline, f"not all ranks came to {name}"
        time.sleep(0.002)


def said_by(call: Callable[[], Any]) -> Said:
    try:
        call()
    except HetcclError as error:
        return type(error).__name__, str(error)
    return "", "no error"


# Calls of which one rank's differs. Each takes whether this rank is the odd one, and returns what the group is to do.

CALLS: dict[str, Callable[[Communicator, bool, torch.Tensor], None]] = {
    "op": lambda group, odd, tensor: group.all_reduce(tensor, "max" if odd else "sum"),
    "count": lambda group, odd, tensor: group.all_reduce(tensor[: 5 if odd else 6]),
    "large count": lambda group, odd, tensor: group.all_reduce(tensor.repeat(200_000 if odd else 100_000)),
    "dtype": lambda group, odd, tensor: group.all_reduce(tensor.double() if odd else tensor),
    "root": lambda group, odd, tensor: group.broadcast(tensor, 1 if odd else 0, timeout=1),
    "root of a reduction": lambda group, odd, tensor: group.reduce(tensor, 1 if odd else 0),
    "collective": lambda group, odd, tensor: group.barrier() if odd else group.all_reduce(tensor),
    "sizes": lambda group, odd, tensor: group.reduce_scatter(
        tensor[: _shares(group, odd)[group.rank]], tensor, counts=_shares(group, odd)
    ),
    "sizes of a pair": lambda group, odd, tensor: group.all_to_all(
        torch.zeros(group.size + odd),
        tensor[: group.size],
        [1 + (odd and peer == (group.rank + 1) % group.size) for peer in range(group.size)],
    ),
}


def _shares(group: Communicator, odd: bool) -> list[int]:
    first = 2 if odd else 1
    return [first, 6 - first, *[0] * (group.size - 2)]


def different_calls(rank: int, size: int, *, odd: int, **how: Any) -> dict[str, tuple[Said, bool]]:
    """What each call raised here, and whether its tensor kept its values."""
    meeting, outcome = store(rank, size), {}
    for name, call in CALLS.items():
        group = join(rank, size, where=meeting, name=name, timeout=20, **how)
        tensor = torch.full((6,), float(rank))
        said = said_by(lambda call=call, group=group, tensor=tensor: call(group, rank == odd, tensor))
        if said[0] == "":  # its part was done when the others noticed
            said = said_by(group.barrier)
        outcome[name] = said, bool((tensor == rank).all())
        together(meeting, size, name)
        group.close()
    return outcome


def agreeing(rank: int, size: int, **how: Any) -> None:
    """Calls that fit each other pass a full check, which takes them one by one."""
    group = join(rank, size, checks=rank == size - 1, **how)  # one rank that asks for it is enough
    for turn in range(3):
        tensor = torch.full((1000,), float(rank))
        group.all_reduce(tensor, "max")
        assert (tensor == size - 1).all()
        sent, received = [rank + turn] * size, [peer + turn for peer in range(size)]
        output = torch.empty(sum(received))
        group.all_to_all(output, torch.full((sum(sent),), float(rank)), received, sent)
        assert torch.equal(output, torch.cat([torch.full((n,), float(p)) for p, n in enumerate(received)]))
        group.barrier()


def late_and_checked(rank: int, size: int) -> Said:
    """The last rank does not come, and another learns of it before anything moves."""
    meeting = store(rank, size)
    group = join(rank, size, where=meeting, checks=True)
    said = ("", "") if rank == size - 1 else said_by(lambda: group.broadcast(torch.ones(3), 0, timeout=1))
    together(meeting, size, "end")
    return said


def another_group(rank: int, size: int, **how: Any) -> Said:
    """The last rank calls in another group than the others."""
    meeting = store(rank, size)
    groups = [join(rank, size, where=meeting, name=name, **how) for name in "ab"]
    said = said_by(lambda: groups[rank == size - 1].all_reduce(torch.ones(6), timeout=1))
    together(meeting, size, "end")
    return said


def _until_stopped(process: int) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, f"process {process} is not stopped"
        time.sleep(0.01)


def late_in_three_ways(rank: int, size: int) -> tuple[str, ...]:
    """Two of the ranks call, the last one does not; at last its process is stopped."""
    meeting, texts = store(rank, size), []
    for name in ("a", "b", "c"):
        group = join(rank, size, where=meeting, name=name)
        if name == "a":
            group.barrier()
        if rank == size - 1:
            if name == "c":
                scenarios.mark()
                time.sleep(1000)
        else:
            if name == "c":
                _until_stopped(group.topology.ranks[size - 1].pid)
            texts.append(said_by(lambda group=group: group.all_reduce(torch.ones(6), timeout=1))[1])
        together(meeting, size if name != "c" else size - 1, name)
    return tuple(texts)


# Groups that cannot be made.


def meetings(rank: int, size: int) -> dict[str, Said]:
    """What each rank is told of groups that cannot be made. The last of the ranks is the one that is to blame."""
    meeting, blamed, outcome = store(rank, size), rank == size - 1, {}

    own = endpoint.endpoint(b"token", "lo", share_memory=True)
    if blamed:
        own.key = bytes(len(own.key))  # the smallest one: its process is the one that connects

    def make(name: str, **how: Any) -> Said:
        return said_by(lambda: join(rank, size, where=meeting, name=name, ranks=[10 + r for r in range(size)], **how))

    def done(name: str, said: Said) -> None:
        outcome[name] = said
        together(meeting, size, name)

    if not blamed:
        outcome["absent"] = make("absent", timeout=1)
    together(meeting, size, "absent")
    done("came late", make("absent") if blamed else ("", ""))

    done("another token", make("another token", token=b"wrong" if blamed else b"token"))

    bootstrap.PROTOCOL += blamed
    done("another protocol", make("another protocol"))
    bootstrap.PROTOCOL -= blamed

    attempt = endpoint.Endpoint._attempt

    def unreachable(*arguments: Any) -> None:
        raise ResourceError("no route")

    endpoint.Endpoint._attempt = unreachable if blamed else attempt  # type: ignore[method-assign]
    done("unreachable", make("unreachable"))
    endpoint.Endpoint._attempt = attempt  # type: ignore[method-assign]

    group = join(rank, size, where=PrefixStore("afterwards", meeting))
    tensor = torch.ones(3)
    group.all_reduce(tensor)
    assert (tensor == size).all()
    return outcome
