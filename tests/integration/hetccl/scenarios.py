"""What ranks do in the tests, each in a process of its own."""

import ctypes
import gc
import importlib
import os
import pickle
import random
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore

from hetccl.communicator import Communicator, Identity
from hetccl.runners import runner
from hetccl.wires import endpoint, watch

TIMEOUT, STORE_TIMEOUT = 60.0, 20.0
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
OPS = {
    "sum": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}

FILE = Path()
_served: list[TCPStore] = []
"""Rank 0's stores live as long as its process: others may still ask in them."""


def mark() -> None:
    """Tell the test that this rank has got so far."""
    FILE.with_suffix(".mark").touch()


def store(rank: int, size: int) -> TCPStore:
    """Rank 0's store, at a port that the system chose."""
    limit, file = timedelta(seconds=STORE_TIMEOUT), FILE.parent / "port"
    if rank == 0:
        served = TCPStore("127.0.0.1", 0, size, True, limit, wait_for_workers=False)
        part = file.with_suffix(".part")
        part.write_text(str(served.port))
        part.rename(file)
        _served.append(served)
        return served
    deadline = time.monotonic() + TIMEOUT
    while not file.exists():
        assert time.monotonic() < deadline, "rank 0 has no store"
        time.sleep(0.01)
    return TCPStore("127.0.0.1", int(file.read_text()), size, False, limit, wait_for_workers=False)


def join(
    rank: int,
    size: int,
    *,
    shm: bool = True,
    kind: str = "",
    token: bytes = b"token",
    timeout: float = TIMEOUT,
    name: str = "world",
    where: Any = None,
    vendor: str = "",
    **more: Any,
) -> Communicator:
    """`vendor`: of all ranks; else those with even numbers and those with odd ones are two islands."""
    torch.set_num_threads(1)
    endpoint.endpoint(token, "lo", lambda: runner(kind), share_memory=shm)
    identity = Identity(
        vendor or ("amd" if rank % 2 else "nvidia"),
        f"pool{rank % 2}",
        token=token,
        job="job",
        interfaces="lo",
        checks=more.pop("checks", False),
    )
    meeting = PrefixStore(name, where or store(rank, size))
    return Communicator(meeting, rank, size, identity, name=name, timeout=timeout, **more)


def _random(rank: int, count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 100, (count,), generator=generator).to(dtype)


def _reference(inputs: list[torch.Tensor], op: str) -> torch.Tensor:
    """In rank order, 16-bit floats in fp32, rounded once."""
    dtype = inputs[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    result = inputs[0].to(wide)
    for other in inputs[1:]:
        result = OPS["sum" if op == "avg" else op](result, other.to(wide))
    if op == "avg":
        whole = not dtype.is_floating_point
        result = torch.div(result, len(inputs), rounding_mode="trunc") if whole else result / len(inputs)
    return result.to(dtype)


def everything(rank: int, size: int, *, cases: int, seed: int, **how: Any) -> list[bytes]:
    """Random collectives, each compared with what it must give. Returns the bits of the reductions."""
    group = join(rank, size, **how)
    chance = random.Random(seed)
    bits = []
    for number in range(cases):
        count = chance.choice([0, 1, 2, 7, 63, 64, 65, 1000, 4097, chance.randrange(200_000), 700_001])
        dtype = chance.choice(FLOATS + INTEGERS)
        ops = ["sum", "min", "max", "product", "avg"] + ([] if dtype.is_floating_point else ["band", "bor", "bxor"])
        op, root = chance.choice(ops), chance.randrange(size)
        counts = [chance.choice([0, count, count // 3, 5]) for _ in range(size)]
        inputs = [_random(r, count, dtype, number) for r in range(size)]
        expected = _reference(inputs, op)

        tensor = inputs[rank].clone()
        group.all_reduce(tensor, op)
        assert torch.equal(tensor, expected), f"all_reduce {op} {dtype} {count}"
        bits.append(tensor.view(torch.uint8).numpy().tobytes()[:4096] if count else b"")

        tensor = inputs[rank].clone()
        group.reduce(tensor, root, op)
        assert torch.equal(tensor, expected if rank == root else inputs[rank]), f"reduce {op} {dtype} {count}"

        tensor = inputs[rank].clone()
        group.broadcast(tensor, root)
        assert torch.equal(tensor, inputs[root]), f"broadcast {dtype} {count}"

        parts = [_random(r, counts[r], dtype, number) for r in range(size)]
        gathered = torch.zeros(sum(counts), dtype=dtype)
        group.all_gather(gathered, parts[rank], counts)
        assert torch.equal(gathered, torch.cat(parts)), f"all_gather {dtype} {counts}"
        at_root = torch.zeros(sum(counts), dtype=dtype) if rank == root else None
        group.gather(at_root, parts[rank], root, counts)
        assert at_root is None or torch.equal(at_root, torch.cat(parts)), f"gather {dtype} {counts}"
        own = torch.zeros(counts[rank], dtype=dtype)
        group.scatter(own, torch.cat(parts) if rank == root else None, root, counts)
        assert torch.equal(own, parts[rank]), f"scatter {dtype} {counts}"

        wholes = [_random(r, sum(counts), dtype, number) for r in range(size)]
        own = torch.zeros(counts[rank], dtype=dtype)
        group.reduce_scatter(own, wholes[rank], op, counts)
        begin = sum(counts[:rank])
        assert torch.equal(own, _reference(wholes, op)[begin : begin + counts[rank]]), (
            f"reduce_scatter {dtype} {counts}"
        )

        matrix = [[chance.randrange(3000) for _ in range(size)] for _ in range(size)]
        received = [matrix[source][rank] for source in range(size)]
        output = torch.zeros(sum(received), dtype=torch.int32)
        source = torch.cat([torch.full((n,), rank * 100 + p, dtype=torch.int32) for p, n in enumerate(matrix[rank])])
        group.all_to_all(output, source, received, matrix[rank])
        expected = torch.cat([torch.full((n,), s * 100 + rank, dtype=torch.int32) for s, n in enumerate(received)])
        assert torch.equal(output, expected), f"all_to_all {matrix}"
    group.barrier()
    group.close()
    return bits


def both_ways(rank: int, size: int, **how: Any) -> None:
    """Large sends in both directions at once, and several in a row."""
    group = join(rank, size, **how)
    peer = 1 - rank
    sent = [torch.full((2_000_000,), float(rank * 10 + n)) for n in range(3)]
    received = [torch.empty(2_000_000) for _ in range(3)]
    threads = [
        threading.Thread(target=lambda: [group.send(tensor, peer) for tensor in sent]),
        threading.Thread(target=lambda: [group.recv(tensor, peer) for tensor in received]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, tensor in enumerate(received):
        assert (tensor == peer * 10 + n).all()


def lost(rank: int, size: int, *, how_lost: str, **how: Any) -> None:
    """The last rank is lost in mid-training, with a forked child that keeps its descriptors, if it can."""
    if how_lost == "stopped":
        watch.LIMIT_SECONDS = 3.0
    group = join(rank, size, timeout=60, **how)
    group.barrier()
    if rank == size - 1:
        if os.fork() == 0:
            time.sleep(1000)
        mark()
        time.sleep(1000)
    group.all_reduce(torch.ones(1000))


def busy(rank: int, size: int, **how: Any) -> None:
    """Rank 1 reads nothing for three times as long as the limit, which here is one second; then all is well.

    With the C core it does not even let go of the GIL, as some compilers do not.
    """
    watch.LIMIT_SECONDS = 1.0
    group = join(rank, size, **how)
    group.barrier()
    if rank == 1:
        (time if how.get("kind") == "python" else ctypes.PyDLL(None)).sleep(3)
    tensor = torch.ones(8_000_000)
    group.all_reduce(tensor)
    assert (tensor == size).all()


def early(rank: int, size: int, **how: Any) -> str:
    """Rank 0 tells of the abort of a group that rank 1 joins later."""
    group = join(rank, size, **how)
    identity, said = 12345, ["rank 0 gave up"]
    if rank == 0:
        group._endpoint.tell_abort(group.topology.ranks[1], identity, said[0])
    else:
        deadline = time.monotonic() + 10
        while identity not in group._endpoint._early and time.monotonic() < deadline:
            time.sleep(0.001)
        said.clear()
        member = type("Member", (), {"broken": None, "on_abort": staticmethod(said.append)})()
        group._endpoint.join(identity, member)
    group.barrier()
    return said[0]


def absent(rank: int, size: int, **how: Any) -> None:
    join(rank, size, timeout=2, **how)


def late(rank: int, size: int, **how: Any) -> None:
    """The last rank does not come to a collective in time."""
    group = join(rank, size, **how)
    group.barrier()
    if rank == size - 1:
        mark()
        time.sleep(1000)
    group.all_reduce(torch.ones(10), timeout=1.0)


def besieged(rank: int, size: int, **how: Any) -> None:
    """Strangers at the port while a group is made and used."""
    import socket

    torch.set_num_threads(1)
    own = endpoint.endpoint(b"token", "lo", share_memory=how.get("shm", True))
    address = own.addresses[0]
    strangers = [socket.create_connection(address) for _ in range(12)]
    for number, stranger in enumerate(strangers):
        stranger.sendall([b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), b"hetccl\r\n\x00\x01"][number % 4])
    group = join(rank, size, **how)
    tensor = torch.ones(100_000)
    for _ in range(20):
        group.all_reduce(tensor, "avg")
    assert (tensor == 1).all()


def _held() -> tuple[int, int, int, int]:
    """Descriptors, threads of Python and of C, segments, bytes of resident memory."""
    gc.collect()
    segments = len(list(Path("/dev/shm").glob("hetccl-*")))
    maps = sum("/dev/shm/hetccl" in line for line in Path("/proc/self/maps").read_text().splitlines())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    threads = len(list(Path("/proc/self/task").iterdir()))
    return len(list(Path("/proc/self/fd").iterdir())), threads, segments + maps, resident


def many_groups(rank: int, size: int, *, groups: int, **how: Any) -> tuple[Any, Any]:
    meeting = store(rank, size)
    first = join(rank, size, where=meeting, **how)

    def come_and_go(name: str) -> None:
        group = join(rank, size, where=meeting, name=name, **how)
        tensors = [torch.ones(10), torch.ones(10)]
        with group.starting() as handles:
            group.all_reduce(tensors[0])
        group.all_reduce(tensors[1])
        assert handles[0].wait(30)
        assert all(tensor.eq(size).all() for tensor in tensors)
        group.close()

    for number in range(20):  # what is made once, is made here
        come_and_go(f"before{number}")
    first.barrier()
    before = _held()
    for number in range(groups):
        come_and_go(f"group{number}")
    first.barrier()
    # The store's own threads come and go with descriptors: what is ours stays.
    deadline = time.monotonic() + 5
    while any(now > then for now, then in zip(_held()[:3], before[:3], strict=True)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return before, _held()


def threads(rank: int, size: int, *, one_group: bool, **how: Any) -> None:
    """Several threads, each with a group of its own, or all with one, and random pauses."""
    meeting = store(rank, size)
    groups = [join(rank, size, where=meeting, name=f"g{n}", **how) for n in range(1 if one_group else 4)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(rank * 10 + number)
        try:
            for turn in range(25):
                if not one_group:
                    time.sleep(chance.random() * 0.01)
                count = 30_000 if one_group else [10, 5000, 300_000][turn % 3]
                tensor = torch.full((count,), 1.0)
                groups[number % len(groups)].all_reduce(tensor)
                assert (tensor == size).all()
        except BaseException as failure:
            failures.append(failure)

    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


def started(rank: int, size: int, **how: Any) -> None:
    """Two groups, whose collectives are started in opposite orders; blocking ones stand behind those."""
    meeting = store(rank, size)
    groups = [join(rank, size, where=meeting, name=f"g{n}", **how) for n in range(2)]
    ended: list[int] = []
    for turn in range(20):
        order = groups if (rank + turn) % 2 else groups[::-1]
        tensors = {group.name: [torch.full((200_000,), 1.0), torch.full((10,), 1.0)] for group in groups}
        handles = []
        for group in order:
            with group.starting() as begun:
                for tensor in tensors[group.name]:
                    group.all_reduce(tensor)
            assert len(begun) == 2
            begun[1].then(lambda turn=turn: ended.append(turn))
            handles += begun
        last = torch.ones(1000)
        groups[turn % 2].all_reduce(last)
        assert (last == size).all()
        assert all(tensor.eq(size).all() for tensor in tensors[groups[turn % 2].name])  # that one stood behind these
        assert all(handle.wait(30) and handle.done and handle.error is None for handle in handles)
        assert all(tensor.eq(size).all() for of_group in tensors.values() for tensor in of_group)
    deadline = time.monotonic() + 10
    while len(ended) < 40 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sorted(ended) == sorted([*range(20), *range(20)])


def started_and_forgotten(rank: int, size: int, **how: Any) -> str:
    """What nobody waits for fails on all ranks with one error, too."""
    group = join(rank, size, **how)
    with group.starting():
        group.all_reduce(torch.ones(10 + rank // 2))
        group.all_reduce(torch.ones(10))
    deadline = time.monotonic() + 20
    while group.broken is None and time.monotonic() < deadline:
        time.sleep(0.001)
    return str(group.broken)


def in_a_forked_child(rank: int, size: int, **how: Any) -> str:
    group = join(rank, size, **how)
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            group.barrier()
            os.write(writer, b"it worked")
        except Exception as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    said = os.read(reader, 1000).decode()
    os.wait()
    group.barrier()
    return said


def closes(rank: int, size: int, **how: Any) -> str:
    """A group is closed while a collective waits for a rank that never comes."""
    group = join(rank, size, **how)
    group.barrier()
    if rank == 1:
        mark()
        time.sleep(1000)
    raised: list[str] = []

    def wait() -> None:
        try:
            group.all_reduce(torch.ones(10))
        except Exception as error:
            raised.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 10
    while group._lane.group.sequence < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    group.close()
    thread.join(5)
    return raised[0]


def run(scenario: str, rank: int, size: int, arguments: dict[str, Any], file: Path) -> None:
    """What a rank's process does: leave what the scenario returned or raised in a file."""
    global FILE  # noqa: PLW0603 - a process runs one scenario
    FILE = file
    try:
        module, _, name = scenario.rpartition(":")
        scenarios = vars(importlib.import_module(module)) if module else globals()
        result: Any = scenarios[name](rank, size, **arguments)
    except Exception as error:
        result = error
    part = FILE.with_suffix(".part")
    part.write_bytes(pickle.dumps(result))
    part.rename(FILE)
    if isinstance(result, Exception):
        print(f"rank {rank}: {result!r}", file=sys.stderr)
    time.sleep(1000)  # until the test ends it: the others may still need this process, or its store
