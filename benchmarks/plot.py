"""plot.py FOLDER: the table and the plots of what collectives.sh measured: FOLDER/table.md and FOLDER/OP.png."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

GOALS = {"gloo": {"all_reduce-2-shm": (10, 5), "-4-shm": (2, 2), "-tcp": (1.2, 1.2), "": (3, 3)}}
"""What we want to be times faster than gloo: up to 64 KiB, and beyond; the first name that fits counts."""
SMALL = 64 << 10


def main() -> None:
    folder = Path(sys.argv[1])
    files = sorted(folder.glob("*.json"))
    documents = {file.stem: json.loads(file.read_text()) for file in files}
    meta = next(iter(documents.values()))["meta"]
    versions = ", ".join(f"{name} {version}" for name, version in meta["versions"].items())
    lines = [
        f"Commit {meta['commit'][:12]}, {meta['cpus']} CPUs, {versions}; islands are simulated.",
        "",
    ]
    for name, document in documents.items():
        lines += table(name, document["rows"])
        plot(name, document["rows"], folder)
    (folder / "table.md").write_text("\n".join(lines))
    print("\n".join(lines))


def table(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Cells that are short of their goal are marked."""
    first = rows[0]
    peers, busy = list(first["peers"]), "busy_us" in first
    titles = ["size", "us", "torch us", *(["busy us"] if busy else []), "busbw GB/s", "of bound"]
    titles += [f"{peer} us | over {peer}" for peer in peers]
    lines = [f"### {first['op']}, {first['ranks']} ranks in islands of {first['islands']}, {first['wire']}", ""]
    lines += [f"| {' | '.join(titles)} |", f"|{'---|' * (len(titles) + len(peers))}"]
    for row in rows:
        cells = [size(row["bytes"]), f"{row['us']:.1f}", f"{row['torch_us']:.1f}"]
        cells += [f"{row['busy_us']:.1f}"] if busy else []
        cells += [f"{row['busbw']:.2f}", f"{row['bound_share']:.2f}"]
        for peer, measured in row["peers"].items():
            ours = row["torch_us"] if peer == "gloo" else row["us"]  # gloo is called through torch, too
            short = " (short)" if measured["us"] / ours < goal(name, peer, row["bytes"]) else ""
            cells += [f"{measured['us']:.1f}", f"{measured['us'] / ours:.2f}{short}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def goal(name: str, peer: str, bytes_: int) -> float:
    if peer != "gloo":
        if "-4-" in name:
            return 0.8
        return 1.0 if name.startswith("all_reduce") or bytes_ >= SMALL else 0.0
    small, large = next(value for part, value in GOALS["gloo"].items() if part in name)
    return small if bytes_ <= SMALL else large


def size(number: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number // unit} {name}"
    return f"{number} B"


def plot(name: str, rows: list[dict[str, Any]], folder: Path) -> None:
    sizes = [row["bytes"] for row in rows]
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.loglog(sizes, [row["us"] for row in rows], "o-", label="hetccl")
    axes.loglog(sizes, [row["torch_us"] for row in rows], "o--", label="hetccl through torch")
    for peer in rows[0]["peers"]:
        axes.loglog(sizes, [row["peers"][peer]["us"] for row in rows], "s:", label=peer)
    axes.set(xlabel="bytes", ylabel="us", title=name)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
