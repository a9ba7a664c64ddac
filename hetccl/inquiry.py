"""When a call was waited for in vain: what those that it waits for do instead.

A rank whose call timed out asks them, over the connections by which aborts travel; every process answers from its
flight recorder, whatever its ranks are waiting for.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from hetccl.observe.recorder import Entry, Recorder, Track

__all__ = ["Answer", "Inquiry", "answer", "missing"]

ANSWER_SECONDS = 1.0
"""How long an answer is waited for."""

_QUESTION, _ANSWER = "\0?", "\0!"


@dataclass(frozen=True)
class Answer:
    """What a rank does. `same` is its call with the number that was asked for; `call` the one that is `running`, or the
    last one that is done, with its `sequence` number; `elsewhere` what it runs in another order of calls. In words;
    empty: none."""

    same: str = ""
    sequence: int = 0
    call: str = ""
    running: bool = False
    elsewhere: str = ""


class Inquiry:
    """The questions and answers of one rank of a group. `send(rank, text)` tells another rank of the group."""

    def __init__(self, rank: int, recorder: Recorder, send: Callable[[int, str], None]) -> None:
        self._rank, self._recorder, self._send = rank, recorder, send
        self._changed = threading.Condition()
        self._answers: dict[tuple[str, int], Answer] = {}

    def ask(self, track: Track, sequence: int, ranks: Sequence[int]) -> dict[int, Answer]:
        """What each of these does, and did in the place of a call; without those that do not answer in time."""
        with self._changed:
            for rank in ranks:
                self._answers.pop((track.identity, rank), None)
        for rank in ranks:
            self._send(rank, f"{_QUESTION}{self._rank} {sequence} {track.identity}")

        def answers() -> dict[int, Answer]:
            found = {rank: self._answers.get((track.identity, rank)) for rank in ranks}
            return {rank: answer for rank, answer in found.items() if answer is not None}

        with self._changed:
            self._changed.wait_for(lambda: len(answers()) == len(ranks), ANSWER_SECONDS)
            return answers()

    def hear(self, text: str) -> bool:
        """Take a word from another rank. False where it is neither a question nor an answer."""
        if text.startswith(_QUESTION):
            asker, sequence, identity = text.removeprefix(_QUESTION).split(" ")
            found = answer(self._recorder.entries(), identity, int(sequence))
            self._send(int(asker), _ANSWER + json.dumps({"rank": self._rank, "track": identity, **asdict(found)}))
        elif text.startswith(_ANSWER):
            said = json.loads(text.removeprefix(_ANSWER))
            key = said.pop("track"), said.pop("rank")
            with self._changed:
                self._answers[key] = Answer(**said)
                self._changed.notify_all()
        else:
            return False
        return True


def answer(entries: Sequence[Entry], identity: str, sequence: int) -> Answer:
    """What a process that recorded these does in an order of calls, and besides."""
    mine = [entry for entry in entries if entry.track.identity == identity]
    open_ones = [entry for entry in entries if _is_open(entry)]
    entry = next((each for each in open_ones if each.track.identity == identity), mine[-1] if mine else None)
    other = next((each for each in open_ones if each.track.identity != identity), None)
    same = next((each for each in mine if each.sequence == sequence), None)
    return Answer(
        same=same.call.describe(sequence) if same else "",
        sequence=entry.sequence if entry else 0,
        call=entry.call.describe(entry.sequence) if entry else "",
        running=entry is not None and _is_open(entry),
        elsewhere=_elsewhere(other) if other else "",
    )


def missing(who: str, sequence: int, answer: Answer | None) -> str:
    """Why rank `who` was waited for in the call with this number, as far as its answer tells."""
    if answer is None:
        return f"{who}, which does not answer"
    if answer.running and answer.sequence == sequence:
        return f"{who}, which waits in it too"
    if answer.same:
        return f"{who}, which is past it"
    if answer.running:
        return f"{who}, which is still in {answer.call}"
    if answer.elsewhere:
        return f"{who}, which is in {answer.elsewhere}"
    last = f"its last call is {answer.call}" if answer.call else "it has made no call of this group"
    return f"{who}, which has not called it: {last}"


def _is_open(entry: Entry) -> bool:
    """What failed a moment ago counts: it waited for the same reason as who asks, and its time was over first."""
    return not entry.done or (entry.failed and time.time_ns() - entry.ended < 2 * ANSWER_SECONDS * 1e9)


def _elsewhere(entry: Entry) -> str:
    age = (time.time_ns() - entry.created) / 1e9
    return f"{entry.call.describe(entry.sequence)} of group {entry.track.name}, for {age:.0f} s"
