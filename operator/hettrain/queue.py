"""A queue of keys: one run of a key at a time, at most one more waiting, and a failed run is tried again later."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

__all__ = ["Queue"]

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 60.0


class Queue:
    """Calls `work(key)`, given to `start`, for each key that is added.

    What `work` returns is when to call it again, in seconds, or None.

    A key added while it runs runs once more afterwards, however often it was added. A run that raises is repeated
    after a pause that doubles each time.
    """

    def __init__(self) -> None:
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._idle = asyncio.Event()

    def start(self, work: Callable[[str], Awaitable[float | None]], workers: int = 16) -> None:
        """Start so many workers."""
        self._tasks = [asyncio.create_task(self._serve(work), name=f"queue worker {i}") for i in range(workers)]

    async def stop(self, grace: float) -> None:
        """Take no more keys and let what runs finish, for `grace` seconds."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._stopping = True
        if self._running:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, key: str) -> None:
        """Run a key as soon as may be."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if self._stopping:
            return
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    @property
    def depth(self) -> int:
        """Keys that wait for their run."""
        return len(self._waiting)

    def add_after(self, key: str, seconds: float) -> None:
        """Run a key in some seconds; an earlier wish, made or still to be made, counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= when:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self.add, key)

    async def _serve(self, work: Callable[[str], Awaitable[float | None]]) -> None:
        while not self._stopping:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._running.add(key)
            try:
                again = await work(key)
                self._failures.pop(key, None)
            except Exception as error:
                count = self._failures[key] = self._failures.get(key, 0) + 1
                again = min(FIRST_PAUSE * 2 ** min(count - 1, 20), LONGEST_PAUSE)
                log.warning("%s: %s; trying again in %.1f s", key, error or type(error).__name__, again, exc_info=True)
            finally:
                self._running.discard(key)
                if not self._running:
                    self._idle.set()
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif again is not None:
                self.add_after(key, again)
