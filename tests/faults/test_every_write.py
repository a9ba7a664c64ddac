"""Whatever happens to any one write, a job ends as if it had not happened."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hettrain.kube import ApiError, Unreachable

from tests.faults.memory_api import Crash, MemoryApi
from tests.faults.story import Story, tell


@pytest.fixture(scope="module")
def undisturbed() -> tuple[dict[str, Any], int]:
    """How the story ends when nothing goes wrong, and how many writes it takes."""
    story = tell()
    return story.outcome(), len(story.api.writes)


def test_the_story_is_the_one_that_is_meant(undisturbed: tuple[dict[str, Any], int]) -> None:
    outcome, writes = undisturbed
    assert (outcome["state"], outcome["attempt"], outcome["restarts"]) == ("Complete", 1, 1)
    assert writes > 20


def once_at(number: int, error: Callable[[], BaseException]) -> Callable[[int], None]:
    def strike(write: int) -> None:
        if write == number:
            raise error()

    return strike


ERRORS: dict[str, Callable[[], BaseException]] = {
    "the operator is killed": Crash,
    "the connection breaks": lambda: Unreachable("connection reset"),
    "the API server fails": lambda: ApiError(500, {"reason": "InternalError"}),
    "too many requests": lambda: ApiError(429, {"reason": "TooManyRequests"}),
    "a conflict": lambda: ApiError(409, {"reason": "Conflict"}),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_before_any_write_is_sent(error: Callable[[], BaseException], undisturbed: tuple[dict[str, Any], int]) -> None:
    outcome, writes = undisturbed
    for number in range(writes):

        def worse(api: MemoryApi, number: int = number) -> None:
            api.before = once_at(number, error)

        story = tell(worse)
        assert story.outcome() == outcome, f"write {number}: {story.api.writes[number]}"


@pytest.mark.parametrize("error", [ERRORS["the operator is killed"], ERRORS["the connection breaks"]])
def test_after_any_write_took_effect_and_its_answer_is_lost(
    error: Callable[[], BaseException], undisturbed: tuple[dict[str, Any], int]
) -> None:
    outcome, writes = undisturbed
    for number in range(writes):

        def worse(api: MemoryApi, number: int = number) -> None:
            api.after = once_at(number, error)

        story = tell(worse)
        assert story.outcome() == outcome, f"write {number}: {story.api.writes[number]}"


def test_every_write_once_in_conflict(undisturbed: tuple[dict[str, Any], int]) -> None:
    def worse(api: MemoryApi) -> None:
        met: set[str] = set()

        def strike(write: int) -> None:
            what = api.writes[write]
            if what not in met:
                met.add(what)
                raise ApiError(409, {"reason": "Conflict"})

        api.before = strike

    assert tell(worse).outcome() == undisturbed[0]


def test_a_quota_that_is_hit_half_way_blocks_the_job_until_it_is_raised(
    undisturbed: tuple[dict[str, Any], int],
) -> None:
    refused: list[str] = []

    def worse(api: MemoryApi) -> None:
        def strike(write: int) -> None:
            if api.writes[write].startswith("create Pod job-0-nvidia-0001") and len(refused) < 5:
                refused.append(api.writes[write])
                raise ApiError(403, {"reason": "Forbidden", "message": "exceeded quota: team"})

        api.before = strike

    outcome = tell(worse).outcome()
    assert ("Blocked", "False", "Started") in outcome.pop("conditions"), "it was blocked, and is not any more"
    assert outcome == {key: value for key, value in undisturbed[0].items() if key != "conditions"}
    assert len(refused) == 5


def test_a_namespace_that_is_deleted_under_a_running_job_is_nothing_to_the_operator() -> None:
    api = MemoryApi()
    story = Story(api)

    async def live() -> None:
        await story.settle()
        story.run()
        story._watch()
        api.objects.clear()  # the watches have not told yet
        await story.controller.reconcile(story.uid)
        await story.controller.reconcile(story.uid)

    asyncio.run(live())
    assert not api.objects
