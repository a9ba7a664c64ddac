"""HETCCL_CHECK=full: what all ranks call is compared before any of it moves.

Without it a difference is noticed by the first message that does not fit, which may be after others were taken. With it
every rank sees what every rank calls, so all of them raise the same, and no tensor has changed.
"""

from collections.abc import Callable, Sequence

from hetccl.calls import Call, describe
from hetccl.observe.ranks import spans

__all__ = ["compare"]

Exchange = Callable[[Sequence[int]], list[list[int]]]
"""Gives the numbers of all ranks for those of this one, as many on every rank."""

_SIGN_BIT, _WORD = 1 << 63, 1 << 64


def compare(call: Call, sequence: int, ranks: Sequence[int], exchange: Exchange) -> str | None:
    """What does not fit in what the ranks call, the same text on all of them, or None.

    `ranks` are the numbers by which they are named. What each pair of ranks has to agree on takes a second exchange;
    every rank sees in the first one whether there is to be one.
    """
    rows = exchange([_signed(call.what), call.count, len(call.sent), len(call.received)])
    said = [describe(_unsigned(what), count, sequence) for what, count, _, _ in rows]
    if any(row != rows[0] for row in rows):
        return _told(ranks, said)
    size = len(ranks)
    if not (len(call.sent) == len(call.received) == size):
        return None
    sizes = exchange([*call.sent, *call.received])
    for receiver in range(size):
        for sender in range(size):
            sent, expected = sizes[sender][receiver], sizes[receiver][size + sender]
            if sent != expected:
                return (
                    f"{said[0]}: rank {ranks[sender]} sends {sent} elements to rank {ranks[receiver]}, which expects "
                    f"{expected} from it"
                )
    return None


def _told(ranks: Sequence[int], said: Sequence[str]) -> str:
    alike: dict[str, list[int]] = {}
    for rank, what in zip(ranks, said, strict=True):
        alike.setdefault(what, []).append(rank)
    return "; ".join(f"{spans(numbers)}: {what}" for what, numbers in alike.items())


def _signed(word: int) -> int:
    return word - _WORD if word >= _SIGN_BIT else word


def _unsigned(number: int) -> int:
    return number % _WORD
