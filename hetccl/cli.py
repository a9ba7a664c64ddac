"""The command line: `hetccl COMMAND`, or `python -m hetccl COMMAND` where nothing is installed."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import hetccl
from hetccl.inject.tree import write_tree


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (else sys.argv) names. Exits 1 where it failed, 2 where it is misspelt."""
    parser = argparse.ArgumentParser(
        prog="hetccl",
        description="Collectives over the GPUs of several vendors.",
        epilog="example: hetccl inject /opt/hetccl",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    inject = commands.add_parser(
        "inject",
        help="write the tree that puts hetccl into an image without it",
        description="Write the hetccl tree to DIR: the package, its wheels, and bootstrap/, the folder for PYTHONPATH.",
        epilog="example: hetccl inject /opt/hetccl && /opt/hetccl/bootstrap/launch torchrun train.py",
    )
    inject.add_argument("dir", metavar="DIR", type=Path, help="the tree's folder; an older tree there is replaced")
    inject.add_argument("--link", action="store_true", help="link the installed package instead of copying it")
    inject.set_defaults(run=lambda options: write_tree(options.dir, link=options.link))

    version = commands.add_parser(
        "version",
        help="print the version and where it is installed",
        description="Print the version of hetccl and the folder that it runs from.",
        epilog="example: hetccl version",
    )
    version.set_defaults(run=lambda _: print(f"hetccl {hetccl.__version__} {Path(hetccl.__file__).parent}"))

    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except OSError as error:
        sys.exit(f"hetccl {options.command}: {error}")
