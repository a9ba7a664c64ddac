"""Rank 0's report: who gets it, and what is in it."""

import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from hetccl.observe import report as module
from hetccl.observe.ranks import rank_map, report, spans
from hetccl.observe.report import ReportServer, bearer

TOKEN = b"token"


@dataclass(frozen=True)
class Member:
    vendor: str
    pool: str
    host: str = "node-1"
    simulated: bool = False
    python: str = "3.12.1"
    torch: str = "2.13.0"


MEMBERS = [Member("nvidia", "a"), Member("nvidia", "a"), Member("amd", "b", simulated=True)]


@pytest.fixture
def server() -> Iterator[ReportServer]:
    with closing(ReportServer(0, TOKEN, lambda: {"world_size": 3})) as served:
        yield served


def ask(port: int, key: str | None, path: str = "/v1/report") -> tuple[int, object]:
    headers = {} if key is None else {"Authorization": key}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_key_opens_it(server: ReportServer) -> None:
    assert ask(server.port, f"Bearer {bearer(TOKEN)}") == (200, {"world_size": 3})


@pytest.mark.parametrize(
    "key",
    [
        None,
        "",
        "Bearer",
        "Bearer token",
        f"Bearer {bearer(b'another')}",
        bearer(TOKEN),
        f"Basic {bearer(TOKEN)}",
        "Bearer é",
    ],
)
def test_nothing_else_does(server: ReportServer, key: str | None) -> None:
    status, document = ask(server.port, key)
    assert status == 401
    assert "world_size" not in json.dumps(document)


def test_another_path_is_told_only_to_those_with_the_key(server: ReportServer) -> None:
    assert ask(server.port, f"Bearer {bearer(TOKEN)}", "/metrics")[0] == 404
    assert ask(server.port, None, "/metrics")[0] == 401


def test_the_key_is_that_of_the_contract() -> None:
    # printf 'hetccl report' | openssl dgst -sha256 -hmac token
    assert bearer(TOKEN) == "48f95fc82f01c29f94fce19874eb48400e8d5793cce4f1b9a86b25bd6ebe56de"


def test_a_client_that_says_nothing_blocks_nobody(server: ReportServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)), socket.create_connection(("::1", server.port)):
        assert ask(server.port, f"Bearer {bearer(TOKEN)}")[0] == 200


def test_clients_that_stay_are_turned_away_beyond_a_limit_and_for_a_time(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.5)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(module.CONNECTIONS)]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as turned_away:
        assert turned_away.recv(1) == b""
    for client in idle:
        client.settimeout(10)
        assert client.recv(1) == b"", "let go after its time"
        client.close()
    assert ask(server.port, f"Bearer {bearer(TOKEN)}")[0] == 200


def test_the_port_is_free_again_when_it_is_closed(server: ReportServer) -> None:
    server.close()
    server.close()
    with closing(ReportServer(server.port, TOKEN, dict)) as again:
        assert again.port == server.port


def test_a_port_that_is_taken_is_an_error(server: ReportServer) -> None:
    with pytest.raises(OSError, match="in use"):
        ReportServer(server.port, TOKEN, dict)


def test_a_forked_child_does_not_keep_the_port(server: ReportServer) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent lets go
        os._exit(0)
    os.close(reader)
    try:
        server.close()
        with closing(ReportServer(server.port, TOKEN, lambda: {"mine": True})) as again:
            assert ask(again.port, f"Bearer {bearer(TOKEN)}") == (200, {"mine": True})
    finally:
        os.close(writer)
        os.waitpid(child, 0)


def test_the_document_is_that_of_the_contract() -> None:
    document = report("team/job/0", MEMBERS)
    assert set(document) == {"version", "job", "world_size", "ranks"}
    assert (document["job"], document["world_size"]) == ("team/job/0", 3)
    assert document["ranks"][2] == {
        "rank": 2,
        "pool": "b",
        "vendor": "amd",
        "device": "cpu",
        "simulated": True,
        "host": "node-1",
        "python": "3.12.1",
        "torch": "2.13.0",
    }


def test_a_rank_that_works_on_a_gpu_is_reported_with_it() -> None:
    found = [(rank["device"], rank["simulated"]) for rank in report("", MEMBERS)["ranks"]]
    assert found == [("cuda", False), ("cuda", False), ("cpu", True)]


def test_the_rank_map_has_a_line_for_each_run_of_ranks_that_are_alike() -> None:
    assert rank_map(MEMBERS) == [
        "ranks 0-1: pool a (nvidia), host node-1, torch 2.13.0, Python 3.12.1",
        "rank 2: pool b (amd, simulated on the CPU), host node-1, torch 2.13.0, Python 3.12.1",
    ]


def test_ranks_are_told_in_spans() -> None:
    assert spans([3]) == "rank 3"
    assert spans([0, 1, 2, 5]) == "ranks 0-2, 5"
