"""What the operator remembers of the cluster, and how it notices that it remembers wrongly."""

import asyncio
from typing import Any

from hettrain.api.job import KIND
from hettrain.audit import Audit
from hettrain.store import Store


def child(uid: str, version: int, owner: str = "job", **metadata: Any) -> dict[str, Any]:
    owners = [{"kind": KIND, "uid": owner, "controller": True}]
    return {
        "metadata": {
            "name": uid,
            "uid": uid,
            "resourceVersion": str(version),
            "ownerReferences": owners,
            "managedFields": ["much"],
            **metadata,
        },
        "spec": {"containers": [{"name": "trainer", "image": "much"}], "nodeName": "n"},
        "status": {"phase": "Running", "hostIP": "much"},
    }


def test_an_object_never_goes_back() -> None:
    store = Store()
    store.put_child("Pod", child("a", 7, labels={"v": "new"}))
    store.put_child("Pod", child("a", 5, labels={"v": "old"}))
    [pod] = store.children("job", "Pod")
    assert pod["metadata"]["labels"] == {"v": "new"}


def test_only_what_is_looked_at_is_kept() -> None:
    store = Store()
    store.put_child("Pod", child("a", 1))
    assert "much" not in str(store.children("job", "Pod"))


def test_children_of_nobody_and_of_other_jobs_are_not_mixed_in() -> None:
    store = Store()
    store.put_child("Pod", child("a", 1))
    store.put_child("Pod", child("b", 1, owner="another"))
    assert store.put_child("Pod", {**child("c", 1), "metadata": {"uid": "c", "name": "c"}}) is None
    store.put_child("Service", child("s", 1))
    assert [pod["metadata"]["uid"] for pod in store.children("job", "Pod")] == ["a"]
    assert store.drop_child("a") == "job"
    assert not store.children("job", "Pod")
    assert store.drop_child("a") is None


class Listed:
    """An API server of which only lists are wanted."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []

    async def list_metadata(self, kind: str, namespace: str | None, selector: str = "") -> list[dict[str, Any]]:
        return [pod["metadata"] for pod in self.pods] if kind == "Pod" else []


def looks(store: Store, server: Listed, times: int) -> tuple[Audit, list[str]]:
    woken: list[str] = []
    audit = Audit(server, store, [None], woken.append)  # type: ignore[arg-type]

    async def look() -> None:
        for _ in range(times):
            await audit.look()

    asyncio.run(look())
    return audit, woken


def test_a_pod_that_is_gone_without_a_word_is_dropped_at_the_second_look() -> None:
    store, server = Store(), Listed()
    store.put_child("Pod", child("ghost", 1))
    _, woken = looks(store, server, 1)
    assert store.children("job", "Pod")
    _, woken = looks(store, server, 2)
    assert not store.children("job", "Pod")
    assert woken == ["job"]


def test_a_watch_that_does_not_tell_is_found_dead_at_the_second_look() -> None:
    store, server = Store(), Listed()
    store.put_child("Pod", child("a", 1))
    server.pods = [child("a", 2)]
    audit, _ = looks(store, server, 1)
    assert not audit.dead
    audit, _ = looks(store, server, 2)
    assert "1 objects" in audit.dead


def test_a_watch_that_tells_is_alive() -> None:
    store, server = Store(), Listed()
    server.pods = [child("a", 1)]
    store.put_child("Pod", child("a", 1))
    audit, woken = looks(store, server, 3)
    assert not audit.dead
    assert not woken
