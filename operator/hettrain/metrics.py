"""What the operator measures of itself, for Prometheus: GET /metrics on the health port."""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hettrain.api import JobStatus
from hettrain.status.times import parse_time

__all__ = ["Metrics", "restart_cause"]

RECONCILE_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
READY_BUCKETS = (1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600)
NOT_SEEN = "Unknown"
"""The state of a job whose status has not been written yet."""


class Metrics:
    """The figures of one process. `jobs` gives the jobs as they are known, `depth` the keys that wait."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs: Callable[[], Iterable[Mapping[str, Any]]] = tuple
        self._requests = Counter(
            "hettrain_api_requests",
            "Requests to the API server, but for those of the watches. Code 0: no answer.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._reconciles = Histogram(
            "hettrain_reconcile_duration_seconds",
            "From looking at a job to the last action that came of it.",
            ["result"],
            buckets=RECONCILE_BUCKETS,
            registry=self.registry,
        )
        self._restarts = Counter("hettrain_job_restarts", "Restarts of whole jobs.", ["cause"], registry=self.registry)
        self._ready = Histogram(
            "hettrain_job_pods_ready_seconds",
            "From the start of an attempt until all of its pods were ready.",
            buckets=READY_BUCKETS,
            registry=self.registry,
        )
        self.depth = Gauge("hettrain_queue_depth", "Jobs that wait for a reconcile.", registry=self.registry)
        self.leader = Gauge("hettrain_leader", "1 in the process that acts.", registry=self.registry)
        ProcessCollector(registry=self.registry)
        self.registry.register(_Jobs(self))

    def request(self, verb: str, resource: str, code: int) -> None:
        """A request was answered, or not (0)."""
        self._requests.labels(verb, resource, str(code)).inc()

    def reconciled(self, seconds: float, *, failed: bool) -> None:
        """A reconcile came to its end."""
        self._reconciles.labels("error" if failed else "ok").observe(seconds)

    def changed(self, before: JobStatus, after: JobStatus) -> None:
        """A status was written."""
        cause = restart_cause(before, after)
        if cause:
            self._restarts.labels(cause).inc()
        if after.ready_time and not before.ready_time and after.attempt_start_time:
            seconds = (parse_time(after.ready_time) - parse_time(after.attempt_start_time)).total_seconds()
            self._ready.observe(seconds)

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)


def restart_cause(before: JobStatus, after: JobStatus) -> str:
    """Why a new attempt began between two statuses, or nothing."""
    if after.attempt <= before.attempt or after.start_time is None:
        return ""
    if after.restarts > before.restarts:
        return "failure"
    if after.ignored_restarts > before.ignored_restarts:
        return "ignored_failure"
    if after.restart_request != before.restart_request:
        return "request"
    return "disruption"


class _Jobs(Collector):
    """The jobs by state, and the shares of those whose load is balanced, as they are when somebody asks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Two families."""
        states: Count[str] = Count()
        shares = GaugeMetricFamily(
            "hettrain_job_pool_share_ratio",
            "A pool's part of each batch, where the load is balanced.",
            labels=["namespace", "job", "pool"],
        )
        for job in self._metrics.jobs():
            status = job.get("status") or {}
            states[status.get("state") or NOT_SEEN] += 1
            for pool in status.get("pools", ()):
                if share := str(pool.get("share", "")).rstrip("%"):
                    metadata = job["metadata"]
                    shares.add_metric([metadata["namespace"], metadata["name"], pool["name"]], int(share) / 100)
        jobs = GaugeMetricFamily("hettrain_jobs", "HetTrainingJobs by state.", labels=["state"])
        for state, count in sorted(states.items()):
            jobs.add_metric([state], count)
        yield jobs
        yield shares
