"""Objects that are only tried: the API server says what is wrong with a template, or what it does not know, before a
job is stored with it."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hettrain.kube import ApiError, Kube, Unreachable
from hettrain.plan import GroupObject, KeptField

__all__ = ["Trial", "try_pods"]

INVALID = (400, 422)
"""Answers that no change of the cluster makes better."""


@dataclass(frozen=True)
class Trial:
    """What came of it, each text with its pool's name: `errors` are the template's, `warnings` the cluster's."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def try_pods(
    kube: Kube, pods: Mapping[str, Mapping[str, Any]], groups: Sequence[GroupObject], kept: Sequence[KeptField]
) -> Trial:
    """Try one pod of each pool, and what schedulers need besides, side by side. `kept`: fields that pods must keep."""
    tried = (_try_pod(kube, pool, pod, kept) for pool, pod in pods.items())
    trials = await asyncio.gather(*tried, *(_try_group(kube, group) for group in groups))
    errors = tuple(text for trial in trials for text in trial.errors)
    return Trial(errors, tuple(dict.fromkeys(text for trial in trials for text in trial.warnings)))


async def _try_group(kube: Kube, group: GroupObject) -> Trial:
    try:
        await kube.create(_unnamed(group.manifest), dry_run=True)
    except ApiError as error:
        return Trial(warnings=(group.remedy if error.status == 404 else f"its gang: {error.message}",))
    except Unreachable as error:
        return Trial(warnings=(f"its gang could not be tried: {error}",))
    return Trial()


async def _try_pod(kube: Kube, pool: str, pod: Mapping[str, Any], kept: Sequence[KeptField]) -> Trial:
    try:
        tried = await kube.create(_unnamed(pod), dry_run=True)
    except ApiError as error:
        text = f"pool {pool}: the API server refuses its pods: {error.message}"
        return Trial(errors=(text,)) if error.status in INVALID else Trial(warnings=(text,))
    except Unreachable as error:
        return Trial(warnings=(f"pool {pool}: its pods could not be tried: {error}",))
    return Trial(warnings=tuple(each.remedy for each in kept if each.field not in tried["spec"]))


def _unnamed(object_: Mapping[str, Any]) -> dict[str, Any]:
    """The job may have no uid yet, and what it names may exist already."""
    manifest: dict[str, Any] = copy.deepcopy(dict(object_))
    metadata = manifest["metadata"]
    metadata.pop("ownerReferences", None)
    metadata["generateName"] = f"{metadata.pop('name')}-"
    return manifest
