"""What a local run shows: the rank map, every replica's output with its prefix, events, and how it went."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

from hettrain.api import HetTrainingJob
from hettrain.events import Event
from hettrain.plan import members, processes_per_pod
from hettrain.plan.names import ATTEMPT_LABEL, INDEX_LABEL, POOL_LABEL

__all__ = ["Screen", "rank_map"]

COLOURS = ("green", "red", "cyan", "magenta", "yellow", "blue")


def rank_map(job: HetTrainingJob) -> Iterator[dict[str, Any]]:
    """Every rank of a job that runs locally, in order: rank, pool, replica, vendor, device, simulated."""
    for member in members(job):
        for local in range(processes_per_pod(member.pool)):
            simulated = member.pool.gpus_per_replica is not None
            yield {
                "rank": member.first_rank + local,
                "pool": member.pool.name,
                "replica": member.index,
                "vendor": member.pool.vendor,
                "device": f"cpu, for {member.pool.vendor} gpu {local}" if simulated else "cpu",
                "simulated": simulated,
            }


class Screen:
    """Standard output of a local run. On a terminal a line at its foot shows the state; in a pipe there is none."""

    def __init__(self, job: HetTrainingJob) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._colours = {pool.name: COLOURS[i % len(COLOURS)] for i, pool in enumerate(job.spec.pools)}
        self._name = job.metadata.name
        self._status: Status | None = None

    def __enter__(self) -> "Screen":
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def rank_map(self, ranks: Sequence[dict[str, Any]]) -> None:
        """Who is who, before anything runs."""
        pools = len(self._colours)
        self.say(f"{len(ranks)} ranks in {pools} pool{'s' * (pools != 1)}, as processes on this machine")
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("rank", "pool", "replica", "vendor", "device", ""):
            table.add_column(column)
        for rank in ranks:
            row = (str(rank[key]) for key in ("rank", "pool", "replica", "vendor", "device"))
            table.add_row(*row, "simulated" if rank["simulated"] else "", style=self._colours[rank["pool"]])
        self._console.print(table)

    def line(self, pod: dict[str, Any], text: str) -> None:
        """A line of a replica's output."""
        labels = pod["metadata"]["labels"]
        pool, index, attempt = labels[POOL_LABEL], labels[INDEX_LABEL], labels[ATTEMPT_LABEL]
        prefix = f"{pool}-{index}" if attempt == "0" else f"{pool}-{index} attempt {attempt}"
        self._console.print(Text(f"{prefix} | ", style=self._colours[pool]) + Text.from_ansi(text))

    def event(self, event: Event) -> None:
        """Something that happened to the job, as `kubectl describe` would show it."""
        self.say(f"{event.reason}: {event.message}", "yellow" if event.type == "Warning" else "bold")

    def state(self, state: str, ready: str, seconds: float) -> None:
        """The line at the foot."""
        if self._status is not None:
            self._status.update(f"{self._name}: {state}, {ready} pods, {seconds:.0f} s")

    def say(self, text: str, style: str = "bold") -> None:
        """A line of our own."""
        self._console.print(f"[{style}]{escape(self._name)}: {escape(text)}[/]")
