"""hetccl into an image that we do not own."""

from typing import Any

import pytest
from hettrain.inject import Source, inject

HOME = "/opt/hetccl"


def injected(delivery: Any = "ImageVolume", **trainer: Any) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    container = {"name": "trainer", "image": "user/image", **trainer}
    pod: dict[str, Any] = {"containers": [container], "initContainers": [{"name": "users"}]}
    warnings = inject(pod, container, Source(delivery, "registry.test/hetccl:1", "IfNotPresent", HOME))
    return pod, container, warnings


def test_an_image_volume_is_mounted_and_nothing_copied() -> None:
    pod, trainer, _ = injected()
    assert pod["volumes"] == [
        {"name": "hetccl", "image": {"reference": "registry.test/hetccl:1", "pullPolicy": "IfNotPresent"}}
    ]
    assert trainer["volumeMounts"] == [{"name": "hetccl", "mountPath": HOME, "readOnly": True}]
    assert [container["name"] for container in pod["initContainers"]] == ["users"]


def test_an_init_container_copies_the_tree_before_the_users_own_run() -> None:
    pod, trainer, _ = injected("InitContainer")
    copier = pod["initContainers"][0]
    assert copier["image"] == "registry.test/hetccl:1"
    assert copier["args"] == [HOME]
    assert "command" not in copier
    assert [container["name"] for container in pod["initContainers"]] == ["hetccl", "users"]
    assert pod["volumes"] == [{"name": "hetccl", "emptyDir": {}}]
    assert trainer["volumeMounts"][0]["readOnly"] is True


def test_the_copier_runs_under_restricted_pod_security() -> None:
    context = injected("InitContainer")[0]["initContainers"][0]["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_a_tree_on_the_host_needs_no_volume() -> None:
    pod, trainer, _ = injected("Host", command=["train"])
    assert "volumes" not in pod
    assert trainer["command"] == [f"{HOME}/bootstrap/launch", "train"]


def test_a_command_is_wrapped_and_its_arguments_are_not_touched() -> None:
    _, trainer, warnings = injected(command=["torchrun", "--x y"], args=["a b"])
    assert trainer["command"] == [f"{HOME}/bootstrap/launch", "torchrun", "--x y"]
    assert trainer["args"] == ["a b"]
    assert "env" not in trainer
    assert not warnings


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ([], f"{HOME}/bootstrap"),
        ([{"name": "PYTHONPATH", "value": "/mine"}], f"{HOME}/bootstrap:/mine"),
        ([{"name": "PYTHONPATH", "value": ""}], f"{HOME}/bootstrap"),
    ],
)
def test_without_a_command_the_python_path_is_extended(users: list[dict[str, str]], expected: str) -> None:
    _, trainer, warnings = injected(env=users)
    assert trainer["env"] == [{"name": "PYTHONPATH", "value": expected}]
    assert not warnings


def test_a_python_path_that_cannot_be_extended_is_kept_with_a_warning() -> None:
    entry = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    _, trainer, [warning] = injected(env=[entry])
    assert trainer["env"] == [entry]
    assert "hetccl is not injected" in warning
