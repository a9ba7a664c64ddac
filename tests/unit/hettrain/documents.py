"""Documents that the tests of hettrain start from."""

from typing import Any

from hettrain.api import HetTrainingJob, load
from hettrain.plan import Context

__all__ = ["CONTEXT", "document", "job", "pool"]

CONTEXT = Context(delivery="ImageVolume", image="registry.test/hetccl:1")


def pool(name: str = "nvidia", **changes: Any) -> dict[str, Any]:
    """A pool of one pod with one GPU. `changes` are fields of the pool; None takes one away."""
    fields = {
        "name": name,
        "vendor": "nvidia",
        "replicas": 1,
        "gpusPerReplica": 1,
        "template": {"spec": {"containers": [{"name": "trainer", "image": "user/image", "command": ["torchrun"]}]}},
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not None}


def document(*pools: dict[str, Any], name: str = "job", **spec: Any) -> dict[str, Any]:
    """A HetTrainingJob as YAML gives it."""
    return {
        "apiVersion": "hetccl.io/v1alpha1",
        "kind": "HetTrainingJob",
        "metadata": {"name": name, "namespace": "team", "uid": "uid-of-the-job", "generation": 1},
        "spec": {"pools": list(pools) or [pool(), pool("amd", vendor="amd")], **spec},
    }


def job(*pools: dict[str, Any], name: str = "job", **spec: Any) -> HetTrainingJob:
    """The same, loaded."""
    return load(document(*pools, name=name, **spec))
