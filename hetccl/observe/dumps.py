"""What the flight recorder holds, in the format of PyTorch's: its analyser (`torchfrtrace`) reads our dumps.

Sends and receives are listed as those of a group of two ranks and one direction, which is the order that they have.
"""

import json
import pickle
from collections.abc import Sequence
from typing import Any

import torch

import hetccl
from hetccl.calls import Call
from hetccl.observe.recorder import Entry, Track

__all__ = ["as_json", "as_pickle", "document"]

VERSION = "2.10"
"""Of PyTorch's format."""

_DTYPES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.bool: "Bool",
}
_SCHEDULED, _STARTED, _COMPLETED = "scheduled", "started", "completed"


def document(entries: Sequence[Entry], rank: int, reason: str) -> dict[str, Any]:
    """The dump of rank `rank` of the world, made because of `reason`."""
    states = _states(entries)
    tracks = {entry.track.identity: entry.track for entry in entries}
    return {
        "version": VERSION,
        "comm_lib_version": f"hetccl {hetccl.__version__}",
        "pg_config": {identity: _group(track) for identity, track in tracks.items()},
        "pg_status": {identity: _progress(identity, entries, states) for identity in tracks},
        "entries": [_entry(entry, state) for entry, state in zip(entries, states, strict=True)],
        "hetccl": {"rank": rank, "reason": reason},
    }


def as_pickle(dump: dict[str, Any]) -> bytes:
    """What the analyser reads."""
    return pickle.dumps(dump)


def as_json(dump: dict[str, Any]) -> bytes:
    """The same for people and jq."""
    return json.dumps(dump, indent=1).encode()


def _states(entries: Sequence[Entry]) -> list[str]:
    """Of the calls of one order that are not done the first runs, unless it waits to be connected; the others wait."""
    states, running = [], set()
    for entry in entries:
        if entry.done:
            states.append(_STARTED if entry.failed else _COMPLETED)
        elif entry.track.identity in running or not (entry.started or entry.running):
            states.append(_SCHEDULED)
        else:
            states.append(_STARTED)
            running.add(entry.track.identity)
    return states


def _group(track: Track) -> dict[str, str]:
    return {"name": track.identity, "desc": track.name, "ranks": str(list(track.ranks))}


def _progress(identity: str, entries: Sequence[Entry], states: Sequence[str]) -> dict[str, int]:
    def last(*wanted: str) -> int:
        numbers = (e.sequence for e, state in zip(entries, states, strict=True) if state in wanted and mine(e))
        return max(numbers, default=-1)

    def mine(entry: Entry) -> bool:
        return entry.track.identity == identity

    return {
        "last_enqueued_collective": last(_SCHEDULED, _STARTED, _COMPLETED),
        "last_started_collective": last(_STARTED, _COMPLETED),
        "last_completed_collective": last(_COMPLETED),
    }


def _entry(entry: Entry, state: str) -> dict[str, Any]:
    track, call = entry.track, entry.call
    name, given, taken = _shape(call, len(track.ranks))
    if track.pair:
        first, second = (sorted(track.ranks).index(rank) for rank in track.ranks)
        name = f"recv {second}<-{first}" if track.receives else f"send {first}->{second}"
    dtype = _DTYPES.get(call.dtype, str(call.dtype).removeprefix("torch.").capitalize())
    known = entry.started and entry.ended and not entry.failed
    return {
        "record_id": entry.number,
        "pg_id": int(track.identity, 16),
        "process_group": (track.identity, track.name),
        "collective_seq_id": entry.sequence,
        "p2p_seq_id": entry.sequence if track.pair else 0,
        "op_id": entry.number,
        "profiling_name": f"nccl:{name}",  # the name that hetccl has in torch
        "time_created_ns": entry.created,
        "duration_ms": (entry.ended - entry.started) / 1e6 if known else None,
        "input_sizes": [[given]],
        "input_dtypes": [dtype],
        "output_sizes": [[taken]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": entry.started or None,
        "time_discovered_completed_ns": entry.ended if known else None,
        "retired": entry.done,
        "timeout_ms": int(entry.seconds * 1e3),
        "is_p2p": track.pair,
        "frames": [],
    }


def _shape(call: Call, size: int) -> tuple[str, int, int]:
    """The analyser's name of a call, and how many elements a rank gives and gets.

    Of uneven sizes the whole stands on both sides: what each rank has of it may differ, and the analyser expects all
    ranks to say the same.
    """
    whole, share = call.count, call.count if call.digest else call.count // size
    match call.name:
        case "all_gather":
            return ("all_gather_v" if call.digest else call.name), share, whole
        case "reduce_scatter":
            return ("reduce_scatter_v" if call.digest else call.name), whole, share
        case "gather":
            return call.name, share, whole
        case "scatter":
            return call.name, whole, share
        case "all_to_all":
            return call.name, sum(call.sent), sum(call.received)
        case _:
            return call.name, whole, whole
