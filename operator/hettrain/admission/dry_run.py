"""Pods that are only tried: the API server says what is wrong with a template before a job is stored with it."""

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hettrain.kube import ApiError, Kube, Unreachable

__all__ = ["Trial", "try_pods"]

INVALID = (400, 422)
"""Answers that no change of the cluster makes better."""


@dataclass(frozen=True)
class Trial:
    """What came of it, each text with its pool's name: `errors` are the template's, `warnings` the cluster's."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def try_pods(kube: Kube, pods: Mapping[str, Mapping[str, Any]]) -> Trial:
    """Try one pod of each pool, side by side."""
    trials = await asyncio.gather(*(_try(kube, pool, pod) for pool, pod in pods.items()))
    errors = tuple(text for trial in trials for text in trial.errors)
    return Trial(errors, tuple(text for trial in trials for text in trial.warnings))


async def _try(kube: Kube, pool: str, pod: Mapping[str, Any]) -> Trial:
    manifest: dict[str, Any] = copy.deepcopy(dict(pod))
    metadata = manifest["metadata"]
    # The job may have no uid yet, and its pods may exist already.
    metadata.pop("ownerReferences", None)
    metadata["generateName"] = f"{metadata.pop('name')}-"
    try:
        await kube.create(manifest, dry_run=True)
    except ApiError as error:
        text = f"pool {pool}: the API server refuses its pods: {error.message}"
        return Trial(errors=(text,)) if error.status in INVALID else Trial(warnings=(text,))
    except Unreachable as error:
        return Trial(warnings=(f"pool {pool}: its pods could not be tried: {error}",))
    return Trial()
