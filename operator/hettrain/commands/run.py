"""`hettrain run --local`."""

import argparse
from pathlib import Path

from hettrain.commands.base import WRONG_INPUT, CommandError, add_file
from hettrain.commands.files import read_job
from hettrain.local.node import CannotRun
from hettrain.local.run import Options, run_locally
from hettrain.plan import CannotPlan

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_file(parser)
    parser.add_argument(
        "--local", action="store_true", required=True, help="on this machine (kubectl apply is for clusters)"
    )
    parser.add_argument("--workdir", metavar="DIR", type=Path, help="where replicas run (default: the file's folder)")
    parser.add_argument("--log-dir", metavar="DIR", type=Path, help="write each replica's output to DIR/POD.log too")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result to FILE as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    job, profiles = read_job(options.file)
    folder = options.workdir or (Path.cwd() if options.file == "-" else Path(options.file).resolve().parent)
    if not folder.is_dir():
        raise CommandError(f"--workdir {folder}: there is no such folder", WRONG_INPUT)
    try:
        return run_locally(job, profiles, Options(folder, options.log_dir, options.json))
    except (CannotRun, CannotPlan) as error:
        raise CommandError(str(error), WRONG_INPUT) from None
