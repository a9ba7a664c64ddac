"""How fast this rank computes: from a batch in hand to the end of its own backward pass, waiting for nobody."""

import statistics
import time
from typing import Any, Protocol

import torch

__all__ = ["Stopwatch", "most_samples"]

MEMORY_IN_USE = 0.9
"""The fraction of a device's memory that a larger share may be expected to fill."""
UNLIMITED = 1 << 40
_KEPT = 16


class _Mark(Protocol):
    """A moment of the host's or of a stream's."""

    def passed(self) -> bool: ...
    def seconds_since(self, earlier: Any) -> float: ...


class _HostMark:
    def __init__(self) -> None:
        self.at = time.perf_counter()

    def passed(self) -> bool:
        return True

    def seconds_since(self, earlier: "_HostMark") -> float:
        return self.at - earlier.at


class _StreamMark:
    """An event on the current stream: nothing waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.event = torch.Event(device.type, enable_timing=True)
        self.event.record()

    def passed(self) -> bool:
        return bool(self.event.query())

    def seconds_since(self, earlier: "_StreamMark") -> float:
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class Stopwatch:
    """Samples a second of the steps since `take` was last called, communication that runs beside them left out."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun: _Mark | None = None
        self._laps: list[tuple[_Mark, _Mark, int]] = []
        self._warm = False
        self.largest = 0
        """The most samples of one step so far."""

    def start(self) -> None:
        """A batch is in hand."""
        self._begun = self._mark()

    def stop(self, samples: int) -> None:
        """The backward pass over `samples` is done. The first step of a process warms up and does not count."""
        begun, self._begun = self._begun, None
        self.largest = max(self.largest, samples)
        if begun is not None and self._warm:
            self._laps = [*self._laps[1 - _KEPT :], (begun, self._mark(), samples)]
        self._warm = True

    def take(self) -> float:
        """The median, or 0 where no step was measured to its end."""
        done = [lap for lap in self._laps if lap[1].passed()]
        self._laps = [lap for lap in self._laps if lap not in done]
        return (
            statistics.median(size / max(end.seconds_since(begun), 1e-9) for begun, end, size in done) if done else 0.0
        )

    def _mark(self) -> _Mark:
        return _HostMark() if self._device.type == "cpu" else _StreamMark(self._device)


def most_samples(device: torch.device, largest: int) -> int:
    """The largest share that fits into the device's memory, by the peak that shares of up to `largest` have reached."""
    if device.type == "cpu" or not largest:
        return UNLIMITED
    peak = torch.cuda.max_memory_allocated(device)
    whole = torch.cuda.mem_get_info(device)[1]
    return max(largest, int(largest * MEMORY_IN_USE * whole / peak)) if peak else UNLIMITED
