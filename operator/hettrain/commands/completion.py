"""`hettrain completion`: a shell's script, made from the parsers."""

import argparse

import shtab

from hettrain.commands.base import DONE

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell that is to complete")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    # The parsers know this file; it needs them only once it runs.
    from hettrain.cli import build_parser  # noqa: PLC0415

    print(shtab.complete(build_parser(), options.shell))
    return DONE
