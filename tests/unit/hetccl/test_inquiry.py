"""What a process says of itself when another rank asks why it is waited for."""

import time

import pytest
import torch

from hetccl.calls import Call
from hetccl.dtypes import Op
from hetccl.inquiry import Answer, Inquiry, answer, missing
from hetccl.observe.recorder import Recorder, Track

WORLD, OTHER = Track("a1", "world", (0, 1)), Track("b2", "experts", (0, 1))
SUM, ROOT = Call("all_reduce", torch.float32, 10, Op.SUM), Call("broadcast", torch.float32, 3, None, 1)


def done(recorder: Recorder, track: Track, call: Call, sequence: int) -> None:
    recorder.add(track, call, sequence, 1.0).ended = time.time_ns()


def test_a_rank_that_never_called_says_so() -> None:
    assert answer([], "a1", 1) == Answer()
    assert missing("rank 1", 1, Answer()) == "rank 1, which has not called it: it has made no call of this group"


def test_a_rank_says_what_it_called_last_and_what_it_is_in_meanwhile() -> None:
    recorder = Recorder()
    done(recorder, WORLD, SUM, 4)
    found = answer(recorder.entries(), "a1", 5)
    assert found == Answer(same="", sequence=4, call=SUM.describe(4))
    assert missing("rank 1", 5, found) == f"rank 1, which has not called it: its last call is {SUM.describe(4)}"
    recorder.add(OTHER, ROOT, 2, 60.0)
    found = answer(recorder.entries(), "a1", 5)
    assert found.elsewhere.startswith(f"{ROOT.describe(2)} of group experts, for ")
    assert missing("rank 1", 5, found) == f"rank 1, which is in {found.elsewhere}"


def test_a_rank_that_is_behind_or_past_the_call_or_waits_in_it_says_so() -> None:
    recorder = Recorder()
    recorder.add(WORLD, SUM, 4, 60.0)
    assert missing("rank 1", 5, answer(recorder.entries(), "a1", 5)) == f"rank 1, which is still in {SUM.describe(4)}"
    assert missing("rank 1", 4, answer(recorder.entries(), "a1", 4)) == "rank 1, which waits in it too"
    recorder = Recorder()
    done(recorder, WORLD, SUM, 4)
    assert missing("rank 1", 4, answer(recorder.entries(), "a1", 4)) == "rank 1, which is past it"


@pytest.mark.parametrize("ended", [False, True])
def test_what_a_rank_called_in_the_place_of_a_call_is_told_whether_it_runs_or_not(ended: bool) -> None:
    recorder = Recorder()
    entry = recorder.add(WORLD, ROOT, 4, 60.0)
    entry.ended = time.time_ns() if ended else 0
    assert answer(recorder.entries(), "a1", 4).same == ROOT.describe(4)


def test_questions_and_answers_find_their_way_and_other_words_are_left_alone() -> None:
    recorders = Recorder(), Recorder()
    ranks: list[Inquiry] = []

    def deliver(to: int, text: str) -> None:
        assert ranks[to].hear(text)

    ranks.extend(Inquiry(rank, recorders[rank], deliver) for rank in (0, 1))
    done(recorders[1], WORLD, SUM, 4)
    assert ranks[0].ask(WORLD, 4, [1]) == {1: Answer(SUM.describe(4), 4, SUM.describe(4))}
    assert not ranks[0].hear("rank 1: all_reduce #4 failed")
