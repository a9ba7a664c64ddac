"""`hettrain validate`."""

import argparse

from hettrain.commands.base import DONE, WRONG_INPUT, CommandError
from hettrain.commands.files import read

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="YAML with jobs and profiles; - is standard input")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    problems = []
    for file in options.files:
        try:
            found = read(file)
        except CommandError as error:
            problems.append(str(error))
        else:
            for kind, name in [
                *(("HetTrainingJob", job.metadata.name) for job in found.jobs),
                *(("HetPoolProfile", name) for name in found.profiles),
            ]:
                print(f"{file}: {kind} {name} is valid")
    if problems:
        raise CommandError("\n".join(problems), WRONG_INPUT)
    return DONE
