"""One function a collective: what rank `rank` of `size` does. Counts are in elements.

Owner computes: each range of a reduction has one owner, which reduces it in rank order and hands the result to all who
want it, so that every rank ends with the same bits. Input and output may be the same memory.
"""

from collections.abc import Sequence
from itertools import accumulate

from hetccl.plan.schedule import Buffer, Operand, Schedule, Space, Step, Wire

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "receive",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
]

DATA, RESULT = 0, 1
"""Lanes: what is still to be reduced, and what its owner hands out."""

ALIGNMENT = 64
"""Elements: pieces begin at multiples of it."""


def pieces(count: int, size: int) -> list[tuple[int, int]]:
    """(offset, length) of each rank's piece of `count` elements, as equal as the alignment allows."""
    share = -(-count // size)
    share = -(-share // ALIGNMENT) * ALIGNMENT
    return [(min(rank * share, count), max(0, min(share, count - rank * share))) for rank in range(size)]


def _others(rank: int, size: int) -> list[int]:
    """The peers of a rank, the next one first: so not all begin with the same."""
    return [(rank + distance) % size for distance in range(1, size)]


def _in_rank_order(own: Operand, rank: int, size: int) -> tuple[Operand, ...]:
    sources: list[Operand] = [Wire(peer, DATA) for peer in range(size)]
    sources[rank] = own
    return tuple(sources)


def all_reduce(rank: int, size: int, count: int, *, divisor: int = 1, exchange: bool = False) -> Schedule:
    """Everybody's INPUT reduced into everybody's OUTPUT.

    `exchange`: every rank sends all it has to every other and reduces for itself, in the same order: one hop instead
    of two, for more bytes.
    """
    if exchange or size == 1:
        sends = [Step((Buffer(Space.INPUT),), (Wire(peer),), count) for peer in _others(rank, size)]
        sources = _in_rank_order(Buffer(Space.INPUT), rank, size)
        # The input may be the output: it is overwritten when it has been sent.
        reduced = Step(sources, (Buffer(Space.OUTPUT),), count, divisor, tuple(range(len(sends))))
        return Schedule((*sends, reduced))
    return _owners(rank, size, count, range(size), divisor)


def reduce(rank: int, size: int, count: int, root: int, *, divisor: int = 1) -> Schedule:
    """Everybody's INPUT reduced into the root's OUTPUT, with the bits that all_reduce gives."""
    return _owners(rank, size, count, [root], divisor)


def _owners(rank: int, size: int, count: int, wanted_by: Sequence[int], divisor: int) -> Schedule:
    """Each rank reduces the piece that it owns, and hands it to those who want the result."""
    parts = pieces(count, size)
    offset, length = parts[rank]
    whole = [peer for peer in _others(rank, size) if parts[peer][1]]
    steps = [Step((Buffer(Space.INPUT, parts[p][0]),), (Wire(p, DATA),), parts[p][1]) for p in whole]
    if length:
        targets: list[Operand] = [Buffer(Space.OUTPUT, offset)] if rank in wanted_by else []
        targets += [Wire(peer, RESULT) for peer in _others(rank, size) if peer in wanted_by]
        sources = _in_rank_order(Buffer(Space.INPUT, offset), rank, size)
        steps.append(Step(sources, tuple(targets), length, divisor))
    if rank in wanted_by:
        steps += [Step((Wire(p, RESULT),), (Buffer(Space.OUTPUT, parts[p][0]),), parts[p][1]) for p in whole]
    return Schedule(tuple(steps))


def reduce_scatter(rank: int, counts: Sequence[int], *, divisor: int = 1) -> Schedule:
    """Range r of everybody's INPUT (counts[r] elements) reduced into OUTPUT of rank r."""
    size = len(counts)
    offsets = list(accumulate(counts, initial=0))
    steps = [Step((Buffer(Space.INPUT, offsets[p]),), (Wire(p),), counts[p]) for p in _others(rank, size) if counts[p]]
    if counts[rank]:
        sources = _in_rank_order(Buffer(Space.INPUT, offsets[rank]), rank, size)
        steps.append(Step(sources, (Buffer(Space.OUTPUT),), counts[rank], divisor))
    return Schedule(tuple(steps))


def all_gather(rank: int, counts: Sequence[int]) -> Schedule:
    """INPUT of rank r (counts[r] elements) into range r of everybody's OUTPUT."""
    size = len(counts)
    offsets = list(accumulate(counts, initial=0))
    steps = []
    if counts[rank]:
        own = Buffer(Space.OUTPUT, offsets[rank])
        steps.append(Step((Buffer(Space.INPUT),), (own,), counts[rank]))
        steps += [Step((Buffer(Space.INPUT),), (Wire(p),), counts[rank]) for p in _others(rank, size)]
    steps += [
        Step((Wire(p),), (Buffer(Space.OUTPUT, offsets[p]),), counts[p]) for p in _others(rank, size) if counts[p]
    ]
    return Schedule(tuple(steps))


def gather(rank: int, counts: Sequence[int], root: int) -> Schedule:
    """INPUT of rank r (counts[r] elements) into range r of the root's OUTPUT."""
    if rank != root:
        return Schedule((Step((Buffer(Space.INPUT),), (Wire(root),), counts[rank]),) if counts[rank] else ())
    offsets = list(accumulate(counts, initial=0))
    steps = [
        Step((Buffer(Space.INPUT) if p == rank else Wire(p),), (Buffer(Space.OUTPUT, offsets[p]),), counts[p])
        for p in range(len(counts))
        if counts[p]
    ]
    return Schedule(tuple(steps))


def scatter(rank: int, counts: Sequence[int], root: int) -> Schedule:
    """Range r of the root's INPUT into OUTPUT of rank r (counts[r] elements)."""
    if rank != root:
        return Schedule((Step((Wire(root),), (Buffer(Space.OUTPUT),), counts[rank]),) if counts[rank] else ())
    offsets = list(accumulate(counts, initial=0))
    steps = [
        Step((Buffer(Space.INPUT, offsets[p]),), (Buffer(Space.OUTPUT) if p == rank else Wire(p),), counts[p])
        for p in range(len(counts))
        if counts[p]
    ]
    return Schedule(tuple(steps))


def broadcast(rank: int, size: int, count: int, root: int) -> Schedule:
    """The root's INPUT into everybody's OUTPUT (at the root they are the same memory).

    The root gives each other rank a piece, which that one hands to the rest while it arrives: the root sends its bytes
    once, however many ranks there are.
    """
    others = [peer for peer in range(size) if peer != root]
    parts = dict(zip(others, pieces(count, len(others)), strict=True)) if others else {}
    if rank == root:
        steps = [
            Step((Buffer(Space.INPUT, offset),), (Wire(peer, DATA),), length)
            for peer, (offset, length) in parts.items()
            if length
        ]
        return Schedule(tuple(steps))
    steps = []
    for peer, (offset, length) in parts.items():
        if not length:
            continue
        source = Wire(root, DATA) if peer == rank else Wire(peer, RESULT)
        rest = [Wire(other, RESULT) for other in others if other != rank and peer == rank]
        steps.append(Step((source,), (Buffer(Space.OUTPUT, offset), *rest), length))
    return Schedule(tuple(steps))


def all_to_all(rank: int, sent: Sequence[int], received: Sequence[int]) -> Schedule:
    """Range p of INPUT (sent[p] elements) to rank p, range p of OUTPUT (received[p]) from it."""
    size = len(sent)
    sources, targets = list(accumulate(sent, initial=0)), list(accumulate(received, initial=0))
    steps = []
    if sent[rank]:
        steps.append(Step((Buffer(Space.INPUT, sources[rank]),), (Buffer(Space.OUTPUT, targets[rank]),), sent[rank]))
    others = _others(rank, size)
    # An empty message says that there is nothing: a rank that expects more is told instead of waiting.
    steps += [Step((Buffer(Space.INPUT, sources[p]),), (Wire(p),), sent[p]) for p in others]
    steps += [Step((Wire(p),), (Buffer(Space.OUTPUT, targets[p]),), received[p]) for p in others]
    return Schedule(tuple(steps))


def barrier(rank: int, size: int) -> Schedule:
    """An empty message to everybody and from everybody."""
    others = _others(rank, size)
    sends = [Step((Buffer(Space.INPUT),), (Wire(peer),), 0) for peer in others]
    return Schedule((*sends, *(Step((Wire(peer),), (Buffer(Space.OUTPUT),), 0) for peer in others)))


def send(peer: int, count: int) -> Schedule:
    """INPUT to a peer."""
    return Schedule((Step((Buffer(Space.INPUT),), (Wire(peer),), count),))


def receive(peer: int, count: int) -> Schedule:
    """OUTPUT from a peer."""
    return Schedule((Step((Wire(peer),), (Buffer(Space.OUTPUT),), count),))
