"""The logs of a gang as they are written: a thread reads each container, over reconnects and restarts of the gang."""

import argparse
import math
import queue
import re
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from hettrain.commands.base import WRONG_INPUT, CommandError
from hettrain.commands.cluster import Cluster, NoSuchJob, Object, Refused, Unreachable
from hettrain.plan.pods import trainer_name
from hettrain.status.pods import Phase, Pod, observe
from hettrain.status.times import parse_time

__all__ = ["Line", "follow"]

LOOK_SECONDS = 1.0
"""How often pods are looked for."""

LAST_SECONDS = 10.0
"""How long, once a job is over, the rest of its logs may take."""


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*(Z|[+-]\d\d:\d\d)$")
EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    """A line of a replica's log. `time` is as the kubelet writes it; empty where it put none in front."""

    time: str
    pool: str
    index: int
    attempt: int
    text: str

    @classmethod
    def of(cls, pod: Pod, text: str) -> Self:
        """From a line as the API server gives it, with its time in front."""
        when, _, rest = text.partition(" ")
        # What the kubelet says itself, of a log that it cannot read, has no time.
        time, said = (when, rest) if TIME.match(when) else ("", text)
        return cls(time, pod.pool, pod.index, pod.attempt, said)

    @property
    def moment(self) -> datetime:
        """When, for comparisons: nodes may write their times in zones of their own."""
        return parse_time(self.time) if self.time else EARLIEST


class _Stream:
    """One container's log, read in a thread. `last` is the time of the last line; `error` is why it ended, if so."""

    def __init__(self, cluster: Cluster, pod: Pod, since: int | None, tail: int | None, after: str) -> None:
        self.pod, self.last = pod, after
        self.error: CommandError | None = None
        self._cluster, self._since, self._tail = cluster, since, tail
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self, lines: "queue.Queue[Line]") -> None:
        self._lines = lines
        self._thread.start()

    @property
    def open(self) -> bool:
        return self._thread.is_alive()

    def _read(self) -> None:
        container = trainer_name(dict(self.pod.raw["spec"]))
        skip = self.last
        try:
            for text in self._cluster.log(self.pod.name, container, True, self._since, self._tail):
                line = Line.of(self.pod, text)
                if not line.time or line.time > skip:
                    self.last = line.time or self.last
                    self._lines.put(line)
        except CommandError as error:
            self.error = error


def follow(cluster: Cluster, job: Object, pools: Collection[str], options: argparse.Namespace) -> Iterator[Line]:
    """The lines of a job's replicas, until it is over or deleted, or the asked-for attempt is past.

    Raises CommandError where the logs may not be read, or where there are more than options.max_streams of them.
    """
    lines: queue.Queue[Line] = queue.Queue()
    streams: dict[str, _Stream] = {}
    ended: set[str] = set()
    give_up = math.inf
    while True:
        found, over = _look(cluster, job, options.attempt)
        for pod in found:
            if pod.pool in pools and pod.phase is not Phase.WAITING and pod.uid not in ended:
                _attend(cluster, pod, streams, ended, lines, options)
        if sum(stream.open for stream in streams.values()) > options.max_streams:
            raise CommandError(
                f"more logs than --max-streams {options.max_streams}: choose with --pool, or raise it", WRONG_INPUT
            )
        wait_until = time.monotonic() + LOOK_SECONDS
        while (left := wait_until - time.monotonic()) > 0:
            try:
                yield lines.get(timeout=left)
            except queue.Empty:
                break
        if over:
            give_up = min(give_up, time.monotonic() + LAST_SECONDS)
            done = all(pod.uid in ended for pod in found if pod.pool in pools and pod.phase is not Phase.WAITING)
            if time.monotonic() > give_up or (done and not any(stream.open for stream in streams.values())):
                break
    while not lines.empty():
        yield lines.get()
    for stream in streams.values():
        if stream.error is not None:
            print(f"{stream.pod.name}: {stream.error}", file=sys.stderr)


def _look(cluster: Cluster, job: Object, attempt: int | None) -> tuple[list[Pod], bool]:
    """The pods to read now, and whether no others will come. An API server that is away has nothing to tell."""
    name = job["metadata"]["name"]
    try:
        now = cluster.job(name)
        status = now.get("status", {})
        current = status.get("attempt", 0)
        pods = [observe(pod) for pod in cluster.pods(name, current if attempt is None else attempt)]
    except NoSuchJob:
        return [], True
    except Unreachable:
        return [], False
    replaced = now["metadata"]["uid"] != job["metadata"]["uid"]
    past = attempt is not None and current > attempt
    return [] if replaced else pods, replaced or past or status.get("state") in ("Complete", "Failed")


def _attend(
    cluster: Cluster,
    pod: Pod,
    streams: dict[str, _Stream],
    ended: set[str],
    lines: "queue.Queue[Line]",
    options: argparse.Namespace,
) -> None:
    """See to it that a pod's log is read: once, or again from where it broke off while the container runs."""
    stream = streams.get(pod.uid)
    if stream is not None:
        if stream.open:
            return
        if isinstance(stream.error, Refused) and stream.error.status == 403:
            raise stream.error
        if stream.error is None and pod.phase is not Phase.RUNNING:
            ended.add(pod.uid)
            return
    after = stream.last if stream else ""
    since = math.ceil((datetime.now(UTC) - parse_time(after)).total_seconds()) + 1 if after else options.since
    streams[pod.uid] = _Stream(cluster, pod, since, None if after else options.tail, after)
    streams[pod.uid].start(lines)
