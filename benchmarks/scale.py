"""How fast hettrain makes pods beside JobSet, on a real control plane with simulated nodes.

    python -m benchmarks.scale --json build/operator.json       as root, about 10 minutes

One cluster, both controllers in it (JobSet in a pod on a real node, hettrain as a process), pods on nodes that kwok
simulates. The two take turns; each figure is the median. Needs what the cluster tests need.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.cluster import Cluster, running_cluster
from tests.cluster.extras import add_extra

CRDS = Path(__file__).parents[1] / "crds"
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
WRITES = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
PATIENCE = 120.0


class Pods:
    """What a watch tells of all pods of the benchmark's namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._phases: dict[str, str] = {}
        self._ever: set[str] = set()
        self._changed = threading.Condition()
        self._cluster, self._path = cluster, f"/api/v1/namespaces/{namespace}/pods"
        threading.Thread(target=asyncio.run, args=[self._follow()], daemon=True).start()

    async def _follow(self) -> None:
        """List and watch; the API server ends a watch whose reader it finds slow, and so again."""
        context = self._cluster.authority.client_context("admin")
        async with aiohttp.ClientSession(self._cluster.server, timeout=aiohttp.ClientTimeout(total=None)) as session:
            while True:
                async with session.get(self._path, ssl=context) as answer:
                    listed = await answer.json()
                with self._changed:
                    self._phases.clear()
                for pod in listed["items"]:
                    self._told({"type": "ADDED", "object": pod})
                since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
                with contextlib.suppress(aiohttp.ClientError):
                    await self._watch(session, since, context)

    async def _watch(self, session: aiohttp.ClientSession, since: dict[str, str], context: ssl.SSLContext) -> None:
        async with session.get(self._path, params=since, ssl=context) as answer:
            rest = b""
            async for part in answer.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    self._told(json.loads(line))

    def _told(self, event: dict[str, Any]) -> None:
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return
        uid = event["object"]["metadata"]["uid"]
        with self._changed:
            if event["type"] == "DELETED":
                self._phases.pop(uid, None)
            else:
                self._ever.add(uid)
                self._phases[uid] = event["object"]["status"].get("phase", "")
            self._changed.notify_all()

    @property
    def created(self) -> int:
        """Pods that there ever were."""
        return len(self._ever)

    def wait(self, what: str, condition: Callable[[], bool]) -> float:
        """Seconds until a condition over `there`, `running` or `created` holds."""
        begun = time.perf_counter()
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                sys.exit(f"{what}: not within {PATIENCE:.0f} s ({self.there()} pods, {self.running()} running)")
        return time.perf_counter() - begun

    def there(self) -> int:
        """Pods that exist."""
        return len(self._phases)

    def running(self) -> int:
        """Pods that run."""
        return sum(phase == "Running" for phase in self._phases.values())


def hettrain_job(name: str, pods: int) -> dict[str, Any]:
    """A job of two pools with `pods` pods together, one process each."""
    container = {"name": "trainer", "image": "registry.local/pause:1"}
    template = {"spec": {"containers": [container], "tolerations": [TOLERATION], "terminationGracePeriodSeconds": 0}}
    pools = [
        {"name": vendor, "vendor": vendor, "replicas": pods // 2, "nprocPerNode": 1, "template": template}
        for vendor in ("nvidia", "amd")
    ]
    spec = {"pools": pools, "failurePolicy": {"maxRestarts": 3, "backoff": {"initialSeconds": 0}}}
    return {"apiVersion": "hetccl.io/v1alpha1", "kind": "HetTrainingJob", "metadata": {"name": name}, "spec": spec}


def jobset(name: str, pods: int) -> dict[str, Any]:
    """The same as a JobSet of two Indexed Jobs."""
    container = {"name": "trainer", "image": "registry.local/pause:1"}
    pod = {
        "containers": [container],
        "tolerations": [TOLERATION],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    }
    half = pods // 2
    job = {"parallelism": half, "completions": half, "completionMode": "Indexed", "backoffLimit": 0}
    jobs = [
        {"name": vendor, "replicas": 1, "template": {"spec": {**job, "template": {"spec": pod}}}}
        for vendor in ("nvidia", "amd")
    ]
    spec = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 3}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


MAKERS = {"hettrain": ("hettrainingjob", hettrain_job), "jobset": ("jobset", jobset)}


@contextmanager
def operator(cluster: Cluster, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """hettrain's process, until the block ends."""
    command = [sys.executable, "-m", "hettrain.cli", "operator", "--hetccl-image", "registry.local/pause:1"]
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            command, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, stdout=output, stderr=output
        )
    try:
        while b"holds the Lease" not in log.read_bytes()[begin:]:
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    """The most memory that a process has had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def requests(cluster: Cluster, **wanted: str | tuple[str, ...]) -> float:
    """The API server's count of requests whose labels are as wanted."""
    total = 0.0
    for line in cluster.fetch("/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].split(","))
            if all(
                labels.get(key, '""').strip('"') in ((v,) if isinstance(v, str) else v) for key, v in wanted.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
    return total


CHILDREN = ("pods", "services", "secrets", "configmaps")


def writes(cluster: Cluster) -> float:
    """Jobs written, children made and deleted: what hettrain does, and nobody else does to jobs of its kind."""
    jobs = requests(cluster, resource="hettrainingjobs", verb=WRITES)
    return jobs + requests(cluster, resource=CHILDREN, subresource="", verb=("POST", "DELETE"))


def one_gang(cluster: Cluster, pods: Pods, who: str, count: int, number: int) -> dict[str, float]:
    """Seconds from the apply of one job of `count` pods to each of its milestones."""
    kind, make = MAKERS[who]
    name = f"{who}-{number}"
    created = pods.created
    begun, before = time.perf_counter(), writes(cluster)
    cluster.apply(make(name, count))
    pods.wait(f"{who}: all created", lambda: pods.created >= created + count)
    times = {"created": time.perf_counter() - begun}
    pods.wait(f"{who}: all running", lambda: pods.running() >= count)
    times |= {"running": time.perf_counter() - begun, "writes": writes(cluster) - before}
    victim = cluster.get("pods", "--selector", selector(who, name), "--chunk-size=1")["items"][0]["metadata"]["name"]
    created, begun = pods.created, time.perf_counter()
    fail(cluster, victim)
    pods.wait(f"{who}: all created anew", lambda: pods.created >= created + count)
    times["recreated"] = time.perf_counter() - begun
    pods.wait(f"{who}: all running anew", lambda: pods.running() >= count and pods.there() == count)
    begun = time.perf_counter()
    cluster.kubectl("delete", kind, name, "--wait=false")
    pods.wait(f"{who}: all gone", lambda: pods.there() == 0)
    times["gone"] = time.perf_counter() - begun
    return times


def selector(who: str, name: str) -> str:
    """What finds the pods of a job."""
    return f"hetccl.io/job-name={name}" if who == "hettrain" else f"jobset.sigs.k8s.io/jobset-name={name}"


def fail(cluster: Cluster, pod: str) -> None:
    """Let a pod fail, as a kubelet would say it."""
    state = {
        "terminated": {
            "exitCode": 1,
            "reason": "Error",
            "finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    }
    status = {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "trainer", "image": "pause", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        ],
    }
    cluster.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def many_jobs(cluster: Cluster, pods: Pods, count: int, log: Path) -> dict[str, float]:
    """`count` jobs of two pods: started, the operator killed and started again, and nothing happening."""
    found: dict[str, float] = {}
    with operator(cluster, log) as process:
        begun = time.perf_counter()
        cluster.apply(*(hettrain_job(f"many-{number:04d}", 2) for number in range(count)))
        pods.wait("many jobs: all running", lambda: pods.running() >= 2 * count)
        found["running"] = time.perf_counter() - begun
        settle(cluster)
        found["rss_mb"] = resident_mb(process)
    made, before = pods.created, writes(cluster)
    begun = time.perf_counter()
    with operator(cluster, log) as process:
        # It has caught up when it sees to the job that comes last.
        cluster.apply(hettrain_job("last", 2))
        pods.wait("after the restart: the next job runs", lambda: pods.running() >= 2 * count + 2)
        found["caught_up"] = time.perf_counter() - begun
        settle(cluster)
        found["made_again"] = pods.created - made - 2
        found["writes_after_restart"] = writes(cluster) - before
        before = writes(cluster)
        time.sleep(30)
        found["writes_in_30_idle_s"] = writes(cluster) - before
        found["rss_mb_after_restart"] = resident_mb(process)
    found["too_many_requests"] = requests(cluster, code="429")
    return found


def settle(cluster: Cluster) -> None:
    """Wait until nothing was written for three seconds."""
    quiet, before = time.perf_counter(), writes(cluster)
    while time.perf_counter() - quiet < 3:
        time.sleep(0.5)
        if (now := writes(cluster)) != before:
            quiet, before = time.perf_counter(), now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000, help="of one job (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1000, help="of two pods each (default: %(default)s; 0: none)")
    parser.add_argument("--runs", type=int, default=3, help="medians of so many (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument(
        "--log", type=Path, default=Path("build/operator.log"), help="the operator's (default: %(default)s)"
    )
    args = parser.parse_args()
    args.log.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with running_cluster(nodes=1) as cluster:
        add_extra(cluster, "jobset")
        cluster.kubectl("apply", "-f", CRDS)
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        cluster.add_simulated_nodes(-(-max(args.pods, 2 * args.jobs + 2) // 200) + 2)
        pods = Pods(cluster, "default")
        results: dict[str, list[dict[str, float]]] = {who: [] for who in MAKERS}
        with operator(cluster, args.log) as process:
            for number, who in itertools.product(range(args.runs), MAKERS):
                results[who].append(one_gang(cluster, pods, who, args.pods, number))
                print(who, {key: round(value, 1) for key, value in results[who][-1].items()}, flush=True)
                settle(cluster)
            memory = resident_mb(process)
        middle = {
            who: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for who, runs in results.items()
        }
        for key in ("created", "running", "recreated", "gone"):
            ours, theirs = middle["hettrain"][key], middle["jobset"][key]
            rows.append(
                {
                    "scenario": f"one job of {args.pods} pods: {key}",
                    "seconds": ours,
                    "pods_per_s": args.pods / ours,
                    "api_writes": middle["hettrain"]["writes"],
                    "rss_mb": memory,
                    "peers": {"jobset": {"seconds": theirs, "ratio": theirs / ours}},
                }
            )
        if args.jobs:
            rows.append({"scenario": f"{args.jobs} jobs of 2 pods", **many_jobs(cluster, pods, args.jobs, args.log)})
    for row in rows:
        print(json.dumps(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"meta": {"simulated": ["nodes"], "runs": args.runs}, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
