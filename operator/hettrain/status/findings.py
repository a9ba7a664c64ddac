"""What `hetccl preflight` leaves as a termination message, and in words."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Finding", "in_words", "of_level", "parse", "sentence"]

Finding = Mapping[str, Any]


def parse(message: str) -> list[Finding]:
    """The findings; none where the message is something else."""
    try:
        found = json.loads(message)
    except ValueError:
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def of_level(found: Sequence[Finding], level: str) -> list[Finding]:
    """Those of a level: ok, fallback or broken."""
    return [finding for finding in found if finding.get("level") == level]


def sentence(finding: Finding) -> str:
    """One finding, with what to do about it."""
    advice = finding.get("advice")
    return f"{finding.get('name')}: {finding.get('text')}{f' -> {advice}' if advice else ''}"


def in_words(message: str) -> str:
    """What is broken, or the message itself where it is something else."""
    found = parse(message)
    return "; ".join(map(sentence, of_level(found, "broken") or found)) or message
