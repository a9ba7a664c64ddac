"""What ranks do on bad days: slow ranks, slow and broken networks, little memory, strangers at the door."""

import contextlib
import ctypes
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path

import torch

from hetccl.errors import HetcclError
from hetccl.runners import runner
from hetccl.wires import endpoint, handshake, watch
from tests.integration.hetccl.misuse import together
from tests.integration.hetccl.scenarios import join, store

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


class Proxy:
    """A network between the ranks: what arrives at `port` goes on to `target`, each piece late by up to `delay`
    seconds, and nothing any more once it is `cut`, with all connections left open."""

    def __init__(self, target: tuple[str, int], delay: float) -> None:
        self.cut = threading.Event()
        self._target, self._delay = target, delay
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            if self.cut.is_set():
                continue
            far = socket.create_connection(self._target)
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        chance = random.Random()
        try:
            while data := source.recv(1 << 16):
                time.sleep(chance.random() * self._delay)
                if self.cut.is_set():
                    time.sleep(1000)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def behind_a_proxy(kind: str, delay: float) -> Proxy:
    """Make this process's endpoint one that is reached through a proxy."""
    own = endpoint.endpoint(b"token", "lo", lambda: runner(kind), share_memory=False)
    proxy = Proxy(own.addresses[0], delay)
    own.addresses = (("127.0.0.1", proxy.port),)
    return proxy


def groups_in_any_order(rank: int, size: int, *, delay: float, kind: str = "", shm: bool = True) -> None:
    """Calls of several groups in flight, started and waited for in an order that each rank draws, with pauses."""
    if delay:
        behind_a_proxy(kind, delay)
    meeting, chance = store(rank, size), random.Random(rank)
    groups = [join(rank, size, where=meeting, name=f"g{n}", kind=kind, shm=shm) for n in range(4)]
    for turn in range(12):
        started, tensors = [], []
        for number in chance.sample(range(4), 4):
            time.sleep(chance.random() * 0.01)
            count = (1, 100, 70_000)[(turn + number) % 3]
            reduced, sent = torch.full((count,), float(number)), torch.full((count,), float(number))
            gathered = torch.empty(size * count)
            with groups[number].starting() as handles:
                groups[number].all_reduce(reduced)
                groups[number].all_gather(gathered, sent)
            started += handles
            tensors += [(reduced, number * size), (gathered, number)]
        for handle in chance.sample(started, len(started)):
            assert handle.wait(30)
        assert all(bool((tensor == value).all()) for tensor, value in tensors), f"turn {turn}"


def cut_off(rank: int, size: int, *, kind: str = "") -> None:
    """The network of the last rank is lost: nothing arrives, nothing is closed."""
    watch.LIMIT_SECONDS = 4.0
    watch.HEARTBEAT_SECONDS = 0.5
    # All its connections go through its own proxy: it is the one that is connected to.
    own = endpoint.endpoint(b"token", "lo", lambda: runner(kind), share_memory=False)
    if rank == size - 1:
        own.key = b"\xff" * len(own.key)
        proxy = Proxy(own.addresses[0], 0)
        own.addresses = (("127.0.0.1", proxy.port),)
    meeting = store(rank, size)
    group = join(rank, size, where=meeting, kind=kind, shm=False)
    group.barrier()
    together(meeting, size, "cut")
    if rank == size - 1:
        proxy.cut.set()
    together(meeting, size, "was cut")
    group.all_reduce(torch.ones(1000), timeout=60)


def in_little_memory(rank: int, size: int) -> tuple[str, int]:
    """With a /dev/shm of one MiB. Returns the wires, and what is left in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise PermissionError(ctypes.get_errno(), "no mount namespace of its own")
    if libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size=1m"):
        raise PermissionError(ctypes.get_errno(), "no /dev/shm of its own")
    heard: list[str] = []
    endpoint.logger.warning = lambda text, *details: heard.append(text % details)  # type: ignore[method-assign]
    group = join(rank, size)
    tensor = torch.ones(100_000)
    group.all_reduce(tensor)
    assert (tensor == size).all()
    own, other = endpoint.endpoint(b"token", "lo", share_memory=True).key.hex(), group.topology.ranks[1 - rank].key
    if own < other:  # the one that offered memory
        (text,) = heard
        assert "/dev/shm is too small: " in text, text
        assert " KiB are needed for one more pair of ranks, 1024 of 1024 KiB are free" in text, text
    return group.wires, len(list(Path("/dev/shm").iterdir()))


def under_siege(rank: int, size: int, *, kind: str = "") -> None:
    """More strangers than there is room for, at rank 0's port: silent ones, slow ones, ones with a wrong token."""
    endpoint.HANDSHAKE_SECONDS = 0.5
    own = endpoint.endpoint(b"token", "lo", lambda: runner(kind), share_memory=False)
    address, done = own.addresses[0], threading.Event()

    let_in: list[str] = []

    def wrong_token() -> None:
        while not done.is_set():
            with socket.create_connection(address) as stranger, contextlib.suppress(HetcclError, OSError, struct.error):
                until = time.monotonic() + 5
                handshake.connect(stranger, b"wrong", os.urandom(16), own.key, handshake.DATA, until)
                let_in.append("one with a wrong token")

    def slow() -> None:
        hello = handshake._HELLO.pack(b"hetccl\r\n", handshake.PROTOCOL, 0, os.urandom(16), os.urandom(32))
        with socket.create_connection(address) as stranger, contextlib.suppress(OSError):
            for byte in hello:
                if done.wait(0.05):
                    return
                stranger.sendall(bytes([byte]))
            let_in.append("one that is slower than is allowed")

    silent = [socket.create_connection(address) for _ in range(endpoint.MOST_STRANGERS + 10)]
    threads = [threading.Thread(target=work) for work in (wrong_token, slow)]
    for thread in threads:
        thread.start()
    group = join(rank, size, kind=kind, shm=False)
    for _ in range(20):
        tensor = torch.ones(10_000)
        group.all_reduce(tensor, "avg")
        assert (tensor == 1).all()
    done.set()
    for thread in threads:
        thread.join()
    for stranger in silent:
        stranger.close()
    assert not let_in
