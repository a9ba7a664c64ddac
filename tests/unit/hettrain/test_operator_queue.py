"""The queue that reconciles run in."""

import asyncio
from collections.abc import Awaitable, Callable

from hettrain.queue import Queue

Work = Callable[[str], Awaitable[float | None]]


def play(work: Work, script: Callable[[Queue], Awaitable[None]], workers: int = 4) -> None:
    async def run() -> None:
        queue = Queue()
        queue.start(work, workers)
        async with asyncio.timeout(10):
            await script(queue)
        await queue.stop(grace=5)

    asyncio.run(run())


def test_a_key_runs_once_at_a_time_and_once_more_however_often_it_was_added() -> None:
    runs: list[str] = []
    running = 0
    started, gate, twice = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(key: str) -> None:
        nonlocal running
        running += 1
        assert running == 1
        runs.append(key)
        started.set()
        await gate.wait()
        running -= 1
        if len(runs) == 2:
            twice.set()

    async def script(queue: Queue) -> None:
        queue.add("a")
        await started.wait()
        for _ in range(100):
            queue.add("a")
        gate.set()
        await twice.wait()

    play(work, script)
    assert runs == ["a", "a"]


def test_different_keys_run_side_by_side() -> None:
    inside = asyncio.Barrier(3)

    async def work(_: str) -> None:
        await inside.wait()

    async def script(queue: Queue) -> None:
        queue.add("a")
        queue.add("b")
        await inside.wait()

    play(work, script)


def test_a_run_that_raises_is_repeated() -> None:
    runs = 0
    done = asyncio.Event()

    async def work(_: str) -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ConnectionError("no answer")
        done.set()

    async def script(queue: Queue) -> None:
        queue.add("a")
        await done.wait()

    play(work, script)
    assert runs == 3


def test_a_key_runs_again_when_its_run_asked_for_it_and_earlier_when_it_is_added() -> None:
    runs = 0
    twice, done = asyncio.Event(), asyncio.Event()

    async def work(_: str) -> float | None:
        nonlocal runs
        runs += 1
        if runs == 2:
            twice.set()
        if runs == 3:
            done.set()
        return 0.01 if runs == 1 else 3600

    async def script(queue: Queue) -> None:
        queue.add("a")
        await twice.wait()
        queue.add("a")
        await done.wait()

    play(work, script)
    assert runs == 3


def test_stopping_lets_a_run_finish_and_starts_no_other() -> None:
    runs: list[str] = []
    started = asyncio.Event()

    async def work(key: str) -> None:
        started.set()
        await asyncio.sleep(0.05)
        runs.append(key)

    async def script(queue: Queue) -> None:
        queue.add("a")
        queue.add("b")
        await started.wait()

    play(work, script, workers=1)
    assert runs == ["a"]
