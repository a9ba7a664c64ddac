"""What a failed trainer left, in words."""

import json

from hettrain.api import FirstFailure

__all__ = ["readable", "sentence"]

AFTER_THE_CALLSTACK = '", "timestamp": "'


def readable(message: str) -> str:
    """A termination message as people read it: of an error file of torch's `record`, the traceback that is in it.

    The kubelet keeps the end of a message, so the front of a long one is missing.
    """
    try:
        said = json.loads(message)["message"]
        text = said["extraInfo"]["py_callstack"] if isinstance(said, dict) else said
    except (ValueError, KeyError, TypeError):
        text = _without_its_front(message)
    return text if isinstance(text, str) else message


def _without_its_front(message: str) -> str | None:
    callstack, found, _ = message.rpartition(AFTER_THE_CALLSTACK)
    _, _, whole_lines = callstack.partition("\\n")
    if not found or not whole_lines or not message.rstrip().endswith("}}}"):
        return None
    try:
        text: str = json.loads(f'"{whole_lines}"')
    except ValueError:
        return None
    return text


def sentence(first: FirstFailure) -> str:
    """Which pod failed and how."""
    code = f", exit code {first.exit_code}" if first.exit_code is not None else ""
    node = f" on node {first.node}" if first.node else ""
    return f"pod {first.pod} (pool {first.pool}, rank {first.rank}{node}) failed: {first.reason}{code}"
