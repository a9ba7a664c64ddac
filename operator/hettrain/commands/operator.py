"""`hettrain operator`."""

import argparse

from hettrain.options import add_options, settings_from
from hettrain.serve import run as serve

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_options(parser)
    parser.set_defaults(run=lambda options: serve(settings_from(options)))
