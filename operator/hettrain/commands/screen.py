"""What a command shows: tables for a terminal, the same as plain columns for a pipe, documents for scripts."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hettrain.local.console import COLOURS
from hettrain.status.times import parse_time

__all__ = ["Block", "Columns", "Lines", "Screen", "age", "colours", "plain"]


@dataclass(frozen=True)
class Columns:
    """A table; without `names` it has no head. `styles` colours its rows on a terminal."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()


@dataclass(frozen=True)
class Lines:
    """Lines of text."""

    lines: Sequence[str]
    style: str = ""


Block: TypeAlias = Columns | Lines


def colours(pools: Iterable[str]) -> dict[str, str]:
    """A colour for each pool: the same as `hettrain run --local` gives it."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(pools)}


def age(time: str | None, now: datetime | None = None) -> str:
    """How long ago a time of the API server was, in its largest unit; `-` for none."""
    if not time:
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - parse_time(time)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def plain(blocks: Sequence[Block]) -> str:
    """Text without colours, nothing cut, no trailing spaces; an empty line between blocks."""
    return "\n\n".join("\n".join(_plain_lines(block)) for block in blocks)


def _plain_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Lines):
        yield from block.lines
        return
    table = [[" ".join(cell.split()) for cell in row] for row in (block.names, *block.rows) if row]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _rich(block: Block) -> RenderableType:
    if isinstance(block, Lines):
        return Text("\n".join(block.lines) + "\n", style=block.style)
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=bool(block.names))
    for name in block.names:
        table.add_column(name, overflow="fold")
    for number, row in enumerate(block.rows):
        style = block.styles[number] if block.styles else ""
        table.add_row(*(Text(cell) for cell in row), style=style)
    return Group(table, "")


class Screen:
    """Standard output. With `output` (json or yaml) documents are shown, else blocks."""

    def __init__(self, output: str | None = None) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._output = output
        self._live: Live | None = None
        self._last = ""

    @contextmanager
    def redrawn(self) -> Iterator[None]:
        """What is shown inside takes the place of what was shown before, on a terminal."""
        if self._output is not None or not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False) as self._live:
            yield

    def show(self, document: Any, blocks: Sequence[Block]) -> None:
        """Show a view of something; in a pipe only if it is not the same as the last time."""
        if self._output == "json":
            text = json.dumps(document, indent=2)
        elif self._output == "yaml":
            text = "---\n" + yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip("\n")
        elif not self.console.is_terminal:
            text = plain(blocks) + ("\n" if len(blocks) > 1 else "")
        else:
            group = Group(*map(_rich, blocks))
            if self._live is not None:
                self._live.update(group, refresh=True)
            else:
                self.console.print(group, soft_wrap=False)
            return
        if text != self._last:
            self._last = text
            print(text, flush=True)

    def note(self, text: str) -> None:
        """Something beside the result, on standard error."""
        print(text, file=sys.stderr)
