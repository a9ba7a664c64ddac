"""`hettrain logs` against the real API server, which asks a kubelet that the test plays: no container runs."""

import os
import ssl
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from hettrain.cli import main

from tests.cluster.cluster import Cluster
from tests.integration.hettrain.api_server import JOBS, ApiServer
from tests.integration.hettrain.world import World

NODE = "played-kubelet"
FIRST = ("job-0-nvidia-0000", "job-0-amd-0000")
SECOND = ("job-1-nvidia-0000", "job-1-amd-0000")
Logs = Callable[..., tuple[int, str, str]]


class Kubelet:
    """What a kubelet answers for containers' logs. `drop` breaks every stream off."""

    def __init__(self) -> None:
        self.lines: defaultdict[str, list[str]] = defaultdict(list)
        self.ended: set[str] = set()
        self.asked: list[dict[str, str]] = []
        self.changed = Condition()
        self.drops = 0

    def write(self, pod: str, *lines: str) -> None:
        with self.changed:
            self.lines[pod] += lines
            self.changed.notify_all()

    def end(self, *pods: str) -> None:
        with self.changed:
            self.ended |= {*pods}
            self.changed.notify_all()

    def drop(self) -> None:
        with self.changed:
            self.drops += 1
            self.changed.notify_all()

    def read(self, pod: str, query: dict[str, str]) -> Iterator[str]:
        self.asked.append({"pod": pod, **query})
        sent, drops, following = 0, self.drops, query.get("follow") == "true"
        while True:
            with self.changed:
                over = not following or pod in self.ended or drops != self.drops
                fresh = self.lines[pod][sent:]
                if not fresh and not over:
                    self.changed.wait(timeout=60)
                    continue
            yield from fresh
            sent += len(fresh)
            if over:
                return


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[ThreadingHTTPServer]:
    """A TLS server whose certificate the API server trusts as a kubelet's."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            _, _, _, pod, _ = url.path.split("/", 4)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in self.server.kubelet.read(pod, query):  # type: ignore[attr-defined]
                data = f"{line}\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    certificate, key = control_plane.authority.issue(NODE, f"/O=system:nodes/CN=system:node:{NODE}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    found.socket = context.wrap_socket(found.socket, server_side=True)
    thread = Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def kubelet(api: ApiServer, namespace: str, server: ThreadingHTTPServer) -> Iterator[Kubelet]:
    played = Kubelet()
    server.kubelet = played  # type: ignore[attr-defined]
    api("POST", "/api/v1/nodes", {"metadata": {"name": NODE}, "spec": {"unschedulable": True}})
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    endpoint = {"kubeletEndpoint": {"Port": server.server_address[1]}}
    ready = [{"type": "Ready", "status": "True", "reason": "Played", "message": ""}]
    status = {"addresses": addresses, "daemonEndpoints": endpoint, "conditions": ready}
    api.merge(f"/api/v1/nodes/{NODE}/status", {"status": status})
    yield played
    jobs = JOBS.format(namespace)
    for job in api.items(jobs):
        api("DELETE", f"{jobs}/{job['metadata']['name']}")
    world = World(api, namespace)
    world.until("the gang is gone", lambda: bury(world, world.pods()))
    api("DELETE", f"/api/v1/nodes/{NODE}")


@pytest.fixture
def logs(control_plane: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> Logs:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["logs", "job", *arguments, "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig)])
        shown = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, shown.out, shown.err

    return run


def start(world: World, *pods: str) -> None:
    world.until_pods(*pods)
    for pod in pods:
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": NODE}}
        world.api("POST", f"/api/v1/namespaces/{world.namespace}/pods/{pod}/binding", binding)
    world.run(*pods)
    world.until_state("Running")


def leaving(world: World) -> list[str]:
    """The pods of the first attempt; only once the operator wants all of them gone."""
    old = {name: pod for name, pod in world.pods().items() if name in FIRST}
    return list(old) if all("deletionTimestamp" in pod["metadata"] for pod in old.values()) else []


def bury(world: World, pods: Iterable[str]) -> bool:
    """Pods of a node go when its kubelet says that their containers have ended. True once they are gone."""
    for name in pods:
        world.api("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/{name}", {"gracePeriodSeconds": 0})
    return not world.pods().keys() & {*FIRST}


def stamped(second: int, text: str) -> str:
    return f"2026-01-01T00:00:{second:02d}.000000000Z {text}"


def test_the_logs_of_all_pools_are_one_in_the_order_of_time(world: World, kubelet: Kubelet, logs: Logs) -> None:
    world.create()
    start(world, *FIRST)
    kubelet.write(FIRST[0], stamped(1, "a"), stamped(4, "d  d"))
    kubelet.write(FIRST[1], stamped(2, "b"), stamped(3, "c"))
    assert logs() == (0, "nvidia-0 | a\namd-0 | b\namd-0 | c\nnvidia-0 | d  d\n", "")
    assert logs("--pool", "amd", "--timestamps")[1].splitlines() == [
        "2026-01-01T00:00:02.000000000Z amd-0 | b",
        "2026-01-01T00:00:03.000000000Z amd-0 | c",
    ]
    logs("--pool", "amd", "--since", "5m", "--tail", "7")
    asked = kubelet.asked[-1]
    assert (asked["pod"], asked["sinceSeconds"], asked["tailLines"]) == (FIRST[1], "300", "7")


def test_what_cannot_be_shown_is_said(world: World, kubelet: Kubelet, logs: Logs) -> None:
    world.create()
    start(world, *FIRST)
    code, _, error = logs("--pool", "intel")
    assert (code, error) == (2, "there is no pool intel: job has nvidia, amd\n")
    code, _, error = logs("--attempt", "7")
    assert (code, error) == (1, "job: attempt 7 has no pods: `hettrain events job` says why\n")
    code, _, error = logs("--max-streams", "1")
    assert (code, "2 logs are more than --max-streams 1" in error) == (2, True)


def test_following_goes_on_over_a_broken_stream_and_a_restart_until_the_job_is_over(
    world: World, kubelet: Kubelet, control_plane: Cluster
) -> None:
    world.create(failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}})
    start(world, *FIRST)
    kubelet.write(FIRST[0], stamped(1, "before"))
    command = [sys.executable, "-u", "-m", "hettrain.cli", "logs", "job", "--follow", "-n", world.namespace]
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "nvidia-0 | before\n"
        kubelet.drop()
        kubelet.write(FIRST[0], stamped(2, "after"))
        assert following.stdout.readline() == "nvidia-0 | after\n"
        world.end(FIRST[1], 3)
        kubelet.end(*FIRST)
        world.until("the gang is gone", lambda: bury(world, leaving(world)))
        start(world, *SECOND)
        kubelet.write(SECOND[1], stamped(3, "again"))
        assert following.stdout.readline() == "amd-0 attempt 1 | again\n"
        for pod in SECOND:
            world.end(pod)
        kubelet.write(SECOND[1], stamped(4, "last"))
        kubelet.end(*SECOND)
        rest, _ = following.communicate(timeout=30)
    assert rest == "amd-0 attempt 1 | last\n"
    assert following.returncode == 0
