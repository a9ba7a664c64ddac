"""Documents that break one rule each: where, and words of the message that say so."""

from typing import Any

from tests.unit.hettrain.documents import document, pool

__all__ = ["BROKEN"]

BROKEN: list[tuple[dict[str, Any], str, str]] = [
    (document(pool(gpusPerReplica=None)), "spec.pools[0].gpusPerReplica", "gpusPerReplica is missing"),
    (document(pool(vendor="cpu")), "spec.pools[0].gpusPerReplica", "for GPU vendors only"),
    (
        document(pool(vendor="cpu", gpusPerReplica=None, resourceName="x.com/y")),
        "spec.pools[0].resourceName",
        "resourceName names what gpusPerReplica counts",
    ),
    (document(pool(), pool()), "spec.pools", "same name"),
    (document(pool(rdma={"count": 2})), "spec.pools[0].rdma.count", "set rdma.resourceName too"),
    (document(pool(minReplicas=2), elastic={}), "spec.pools[0].minReplicas", "more than replicas"),
    (document(pool(replicas=2, maxReplicas=1), elastic={}), "spec.pools[0].maxReplicas", "less than replicas"),
    (
        document(elastic={"shrinkAfterSeconds": 9}, scheduling={"gang": "Volcano"}),
        "spec.elastic.shrinkAfterSeconds",
        "a gang scheduler gives nodes to all or none",
    ),
    (document(pool(maxReplicas=2)), "spec.elastic", "are for elastic jobs"),
    (document(pool(maxReplicas=2), elastic={"replicas": 3}), "spec.elastic.replicas", "out of what the pools allow"),
    (
        document(pool(replicas=4, minReplicas=2), elastic={"replicas": 1}),
        "spec.elastic.replicas",
        "out of what the pools allow",
    ),
    (document(rendezvous={"port": 29600}), "spec.rendezvous.port", "choose another port"),
    (
        document(failurePolicy={"backoff": {"initialSeconds": 9, "maxSeconds": 3}}),
        "spec.failurePolicy.backoff.initialSeconds",
        "above maxSeconds",
    ),
    (
        document(failurePolicy={"rules": [{"action": "RestartIgnoreLimit", "onReasons": ["OOMKilled"]}]}),
        "spec.failurePolicy.rules[0].onReasons",
        "would restart for ever",
    ),
    (
        document(failurePolicy={"rules": [{"action": "Fail", "pools": ["typo"]}]}),
        "spec.failurePolicy.rules",
        "a pool that the job does not have",
    ),
    (
        document(successPolicy={"pools": ["nvidia", "typo"]}),
        "spec.successPolicy.pools",
        "a pool that the job does not have",
    ),
    (
        document(*(pool(f"p{i}") for i in range(9)), scheduling={"queue": "team"}),
        "spec.pools",
        "at most 8 pools",
    ),
    (document(name="9lives"), "metadata.name", "a letter first"),
    (document(pool("p" * 30), name="j" * 22), "metadata.name", "shorten one of them"),
    (
        document(pool(template={"spec": {"hostname": "x", "containers": [{"name": "t"}]}})),
        "spec.pools[0].template.spec.hostname",
        "remove them from the template",
    ),
]
