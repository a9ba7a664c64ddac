"""`hetccl simulate`: weighs the plans of a collective in the model, prints the table and writes the JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetccl.plan.model import Machine, best, bound

__all__ = ["MOST_RANKS", "report"]

MOST_RANKS = 256
"""Schedules of all ranks are held at once: their steps grow with the square of the ranks."""


def report(op: str, sizes: Sequence[int], machine: Machine, file: Path | None) -> None:
    """Print a row a size (bytes), and write the rows to `file`. Raises RuntimeError where there are too many ranks."""
    if machine.ranks > MOST_RANKS:
        raise RuntimeError(f"{machine.ranks} ranks are too many: at most {MOST_RANKS} can be weighed")
    islands = "+".join(map(str, machine.islands))
    print(f"# {op}, float32, {machine.ranks} ranks in islands of {islands}: a model, nothing ran")
    print(f"{'bytes':>12} {'plan':>10} {'model us':>13} {'bound us':>13} {'ratio':>7}", flush=True)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        plan, seconds = best(op, size, machine)
        least = bound(op, size, machine)
        ratio = seconds / least if least else 1.0
        rows.append(
            {"op": op, "bytes": size, "plan": plan, "model_us": seconds * 1e6, "bound_us": least * 1e6, "ratio": ratio}
        )
        print(f"{size:>12} {plan:>10} {seconds * 1e6:>13.1f} {least * 1e6:>13.1f} {ratio:>7.2f}", flush=True)
    if file is not None:
        file.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
