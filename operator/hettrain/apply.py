"""Actions to API calls. Each may be repeated: what is there already and ours is as good as made."""

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from hettrain.actions import Action, AskQueue, AskReport, Create, CreateToken, Delete, Refusal, Try
from hettrain.api import HetTrainingJob
from hettrain.kube import ApiError, Kube, kind_of
from hettrain.store import Store, owner_of

__all__ = ["Question", "apply"]

TOKEN_BYTES = 32
SIDE_BY_SIDE = 24
"""Fewer than the client allows in all: a large gang leaves room for other jobs."""

Question = AskReport | AskQueue

REFUSED = (400, 403, 422)
"""Answers to a creation that trying harder does not change; reason and message tell the user why."""


async def apply(
    actions: Sequence[Action], job: HetTrainingJob, kube: Kube, store: Store, ask: Callable[[Question], None]
) -> tuple[Refusal, ...]:
    """Carry the actions out in their order, those of a kind side by side. Stops at the first that is refused."""
    turns = asyncio.Semaphore(SIDE_BY_SIDE)

    async def in_turn(action: Action) -> Refusal | None:
        async with turns:
            return await _act(action, job, kube, store, ask)

    for _, group in itertools.groupby(actions, _stage):
        done = await asyncio.gather(*map(in_turn, group), return_exceptions=True)
        errors = [result for result in done if isinstance(result, BaseException)]
        if errors:
            raise errors[0]
        refusals = tuple(result for result in done if isinstance(result, Refusal))
        if refusals:
            return refusals
    return ()


def _stage(action: Action) -> tuple[str, str]:
    kind = action.manifest["kind"] if isinstance(action, Create | CreateToken) else ""
    return type(action).__name__, kind


async def _act(
    action: Action, job: HetTrainingJob, kube: Kube, store: Store, ask: Callable[[Question], None]
) -> Refusal | None:
    match action:
        case Create(manifest=manifest, remedy=remedy):
            return await _create(manifest, job, kube, store, remedy)
        case Try():
            return await _try(action, kube)
        case CreateToken(manifest=manifest):
            return await _create(
                {**manifest, "stringData": {"token": secrets.token_hex(TOKEN_BYTES)}}, job, kube, store
            )
        case Delete(kind=kind, name=name, uid=uid):
            await _delete(kind, name, uid, job, kube)
        case AskReport() | AskQueue():
            ask(action)
    return None


async def _create(
    manifest: dict[str, Any], job: HetTrainingJob, kube: Kube, store: Store, remedy: str = ""
) -> Refusal | None:
    kind, name = kind_of(manifest), manifest["metadata"]["name"]
    try:
        created = await kube.create(manifest)
    except ApiError as error:
        if error.reason == "AlreadyExists":
            return await _whose(kind, name, job, kube)
        if error.status == 404:
            # Of kinds that every API server has: the namespace is gone, and the job with it.
            return Refusal(kind, name, "SchedulerMissing", remedy) if remedy else None
        if error.status in REFUSED:
            return Refusal(
                kind, name, error.reason or "Refused", f"the API server refuses {kind} {name}: {error.message}"
            )
        raise
    if kind in ("Pod", "Service"):
        store.put_child(kind, created)
    return None


async def _try(action: Try, kube: Kube) -> Refusal | None:
    metadata = action.manifest["metadata"]
    name = metadata["name"]
    unnamed = {"namespace": metadata["namespace"], "labels": metadata["labels"], "generateName": f"{name}-"}
    try:
        tried = await kube.create({**action.manifest, "metadata": unnamed}, dry_run=True)
    except ApiError as error:
        if error.status in REFUSED:
            return Refusal(
                "Pod", name, error.reason or "Refused", f"the API server refuses Pod {name}: {error.message}"
            )
        raise
    return None if action.field in tried["spec"] else Refusal("Pod", name, "SchedulerMissing", action.remedy)


async def _whose(kind: str, name: str, job: HetTrainingJob, kube: Kube) -> Refusal | None:
    """None where the object is this very job's: an earlier run made it, and died or has not seen it yet."""
    try:
        found = await kube.get(kind, job.metadata.namespace, name)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    if owner_of(found["metadata"]) == job.metadata.uid:
        return None
    owners = found["metadata"].get("ownerReferences", ())
    owner = ", ".join(f"{each['kind']} {each['name']} (uid {each['uid']})" for each in owners) or "nobody that it names"
    return Refusal(
        kind,
        name,
        "NameTaken",
        f"{kind} {name} exists and belongs to {owner}: remove it, or give this job another name",
    )


async def _delete(kind: str, name: str, uid: str | None, job: HetTrainingJob, kube: Kube) -> None:
    try:
        await kube.delete(kind, job.metadata.namespace, name, uid)
    except ApiError as error:
        # 404: gone. 409 for a uid: the name is another object's by now, so ours is gone, too.
        if error.status != 404 and not (error.status == 409 and uid is not None):
            raise
