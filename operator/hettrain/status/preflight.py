"""What the preflight of each pod found: its findings come by termination message."""

from collections.abc import Mapping, Sequence

from hettrain.plan.preflight import PREFLIGHT
from hettrain.plan.ranks import Member
from hettrain.status.conditions import Claim
from hettrain.status.findings import Finding, of_level, parse, sentence
from hettrain.status.pods import Pod

__all__ = ["bad_nodes", "judge_preflight"]

MOST_SHOWN = 8
ITSELF = "preflight"
"""The name of the finding that the check itself failed."""


def judge_preflight(members: Sequence[Member], pods: Mapping[tuple[str, int], Pod]) -> Claim:
    """The condition PreflightPassed."""
    checked = {key: found for key, pod in pods.items() if (found := _findings(pod)) is not None}
    broken = _sentences(pods, checked, "broken")
    if broken:
        return "PreflightPassed", "False", "Broken", broken
    if any(member.key not in checked for member in members):
        return "PreflightPassed", "Unknown", "Running", f"{len(checked)} of {len(members)} pods have been checked"
    fallbacks = _sentences(pods, checked, "fallback")
    if fallbacks:
        return "PreflightPassed", "True", "Fallbacks", fallbacks
    return "PreflightPassed", "True", "Passed", f"all {len(members)} pods were checked"


def bad_nodes(pods: Sequence[Pod]) -> list[str]:
    """The nodes on which a preflight found something broken. One that could not be run says nothing about its node."""
    return sorted({pod.node for pod in pods if pod.node and _said_by_itself(pod)})


def _said_by_itself(pod: Pod) -> bool:
    return any(finding.get("name") != ITSELF for finding in of_level(_findings(pod) or (), "broken"))


def _findings(pod: Pod) -> Sequence[Finding] | None:
    """What was found; None: the check has not ended."""
    for container in pod.raw.get("status", {}).get("initContainerStatuses", ()):
        if container["name"] == PREFLIGHT:
            ended = container.get("state", {}).get("terminated")
            if ended is None:
                return None
            found = parse(ended.get("message") or "")
            if not found and ended.get("exitCode"):
                text = f"the check itself failed with exit code {ended['exitCode']}: {ended.get('message') or ''}"
                return [{"name": ITSELF, "level": "broken", "text": text.rstrip(": ")}]
            return found
    return None


def _sentences(
    pods: Mapping[tuple[str, int], Pod], checked: Mapping[tuple[str, int], Sequence[Finding]], level: str
) -> str:
    """What was found of a level: pods that say the same are told of together."""
    said: dict[tuple[str, str], list[Pod]] = {}
    for key, found in checked.items():
        for finding in of_level(found, level):
            said.setdefault((key[0], sentence(finding)), []).append(pods[key])
    lines = []
    for (pool, what), where in list(said.items())[:MOST_SHOWN]:
        first = f"{where[0].name}{f' on node {where[0].node}' if where[0].node else ''}"
        more = f" and {len(where) - 1} more" if where[1:] else ""
        lines.append(f"pool {pool}, {first}{more}: {what}")
    if len(said) > MOST_SHOWN:
        lines.append(f"and {len(said) - MOST_SHOWN} further findings")
    return "\n".join(lines)
