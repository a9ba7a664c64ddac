"""`hettrain suspend`, `resume`, `restart` and `delete`: what a user does to a job that is there."""

import argparse
from datetime import UTC, datetime

from hettrain.api.job import RESTART_ANNOTATION
from hettrain.commands.base import DONE, add_job
from hettrain.commands.cluster import connect

__all__ = ["add_delete", "add_restart", "add_resume", "add_suspend"]


def add_suspend(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    parser.set_defaults(run=lambda options: _suspend(options, True))


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    parser.set_defaults(run=lambda options: _suspend(options, False))


def add_restart(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    parser.set_defaults(run=_restart)


def add_delete(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    parser.set_defaults(run=_delete)


def _suspend(options: argparse.Namespace, suspend: bool) -> int:
    cluster, word = connect(options), "suspended" if suspend else "resumed"
    generation = cluster.job(options.name)["metadata"]["generation"]
    changed = cluster.change(options.name, {"spec": {"suspend": suspend}})
    same = changed["metadata"]["generation"] == generation
    print(f"{options.name}: {'nothing to do: ' if same else ''}{word}")
    return DONE


def _restart(options: argparse.Namespace) -> int:
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    connect(options).change(options.name, {"metadata": {"annotations": {RESTART_ANNOTATION: now}}})
    print(f"{options.name}: starts over")
    return DONE


def _delete(options: argparse.Namespace) -> int:
    connect(options).delete(options.name)
    print(f"{options.name}: deleted; its pods go with it")
    return DONE
