"""`hettrain render`."""

import argparse
import sys

import yaml

from hettrain.commands.base import DONE, WRONG_INPUT, CommandError, add_file
from hettrain.commands.files import read_job
from hettrain.plan import CannotPlan, Context, members, plan

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_file(parser)
    parser.add_argument(
        "--delivery", choices=["ImageVolume", "InitContainer"], default="ImageVolume", help="what Auto means"
    )
    parser.add_argument("--hetccl-image", metavar="REF", default="hetccl:latest", help="image of jobs that name none")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    job, profiles = read_job(options.file)
    context = Context(delivery=options.delivery, image=options.hetccl_image, profiles=profiles)
    try:
        wanted = plan(job, job.status.attempt, members(job), context)
    except CannotPlan as error:
        raise CommandError(str(error), WRONG_INPUT) from None
    for warning in wanted.warnings:
        print(warning, file=sys.stderr)
    manifests = [
        wanted.service,
        wanted.token,
        *wanted.config_maps,
        *wanted.budgets,
        *(each.manifest for each in wanted.groups),
    ]
    manifests += [*(pod.manifest for pod in wanted.pods)]
    yaml.safe_dump_all(manifests, sys.stdout, sort_keys=False)
    return DONE
