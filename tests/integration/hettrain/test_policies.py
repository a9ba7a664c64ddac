"""The policies of a job, as the operator's process keeps them against the real API server."""

from typing import Any

from tests.integration.hettrain.world import World

FIRST = ("job-0-nvidia-0000", "job-0-amd-0000")
SECOND = ("job-1-nvidia-0000", "job-1-amd-0000")
THIRD = ("job-2-nvidia-0000", "job-2-amd-0000")


def start(world: World, **spec: Any) -> None:
    world.create(**spec)
    world.until_pods(*FIRST)
    world.run()
    world.until_state("Running")


def test_failure_rules_tell_failures_apart(world: World) -> None:
    rules = [
        {"action": "Fail", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "RestartIgnoreLimit", "pools": ["amd"]},
    ]
    start(world, failurePolicy={"maxRestarts": 1, "backoff": {"initialSeconds": 0}, "rules": rules})
    world.end(FIRST[1], 1)
    world.until_pods(*SECOND)
    world.run()
    world.end(SECOND[1], 137, reason="OOMKilled")
    world.until_pods(*THIRD)
    status = world.status()
    assert (status["restarts"], status["ignoredRestarts"]) == (1, 1)
    world.run()
    world.end(THIRD[0], 42)
    world.until_state("Failed")
    assert world.condition("Failed")["reason"] == "FailurePolicy"
