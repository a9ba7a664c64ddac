"""The command line: `hetccl COMMAND`, or `python -m hetccl COMMAND` where nothing is installed."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import hetccl
from hetccl.bench.formulas import BUS, DTYPES
from hetccl.bench.run import PEERS, Task, islands_of, parse_islands, parse_sizes
from hetccl.bench.run import run as measure
from hetccl.doctor import Level, examine, message, report
from hetccl.inject.tree import write_tree
from hetccl.plan.model import PLANS, Machine
from hetccl.plan.report import report as weigh


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

    _add_bench(commands)
    _add_simulate(commands)
    _add_doctor(commands)
    _add_preflight(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except (OSError, RuntimeError) as error:
        sys.exit(f"hetccl {options.command}: {error}")


def _add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    doctor = commands.add_parser(
        "doctor",
        help="say what hetccl would use here, and why",
        description="Say what hetccl would use in this environment, and why. Exits 0 where all is well, 1 where it "
        "works with fall-backs, 2 where it does not work.",
        epilog="example: hetccl doctor --peer other-host",
    )
    doctor.add_argument("--peer", metavar="HOST", default="", help="see how HOST (or HOST:PORT) is reached")
    doctor.add_argument("--json", action="store_true", help="print JSON")

    def run(options: argparse.Namespace) -> None:
        found = examine(peer=options.peer)
        print(report(found, as_json=options.json))
        sys.exit(max(finding.level for finding in found))

    doctor.set_defaults(run=run)


def _add_preflight(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    preflight = commands.add_parser(
        "preflight",
        help="doctor, as an init container before the trainer",
        description="Say what hetccl would use here, and leave what is not well as the container's termination "
        "message. MODE Fail: exits 2 where hetccl does not work here. Warn: always exits 0.",
        epilog="example: hetccl preflight Fail",
    )
    preflight.add_argument("mode", metavar="MODE", choices=["Warn", "Fail"], help="Warn or Fail")
    preflight.add_argument("--message", metavar="FILE", type=Path, default=Path("/dev/termination-log"))

    def run(options: argparse.Namespace) -> None:
        found = examine()
        print(report(found, as_json=False))
        options.message.write_text(message(found))
        broken = any(finding.level is Level.BROKEN for finding in found)
        sys.exit(int(Level.BROKEN) if broken and options.mode == "Fail" else 0)

    preflight.set_defaults(run=run)


def _add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bench = commands.add_parser(
        "bench",
        help="measure a collective against its peers on this machine",
        description="Measure a collective between processes of this machine, with its peers in the same run.",
        epilog="example: hetccl bench all_reduce --islands 1+1 --sizes 4,64K,1M,64M --peer gloo --peer openmpi",
    )
    bench.add_argument("op", metavar="OP", choices=sorted(BUS), help=", ".join(sorted(BUS)))
    bench.add_argument(
        "--islands",
        metavar="N+N",
        type=parse_islands,
        help="ranks of each simulated island (default: 1+1, or halves of --ranks)",
    )
    bench.add_argument("--ranks", metavar="N", type=int, choices=range(1, 257), help="how many ranks in all")
    bench.add_argument("--device", choices=["cpu"], default="cpu", help="where the tensors are")
    bench.add_argument(
        "--wire", choices=["auto", "shm", "tcp"], default="auto", help="auto: shared memory where it works"
    )
    bench.add_argument("--dtype", choices=DTYPES, default="float32", help="of the elements (default: float32)")
    bench.add_argument(
        "--sizes", metavar="SIZES", type=parse_sizes, default="4,64K,1M,16M", help="4,64K,1M (default: 4,64K,1M,16M)"
    )
    bench.add_argument("--peer", action="append", choices=PEERS, default=[], help="compare with it; may be given again")
    bench.add_argument("--busy", action="store_true", help="measure a call beside pure Python in the main thread too")
    bench.add_argument("--json", metavar="FILE", type=Path, help="write the rows to FILE as JSON")

    def run(options: argparse.Namespace) -> None:
        islands, peers = islands_of(options.islands, options.ranks), tuple(options.peer)
        task = Task(options.op, islands, options.wire, options.dtype, options.sizes, peers, options.busy)
        measure(task, options.json)

    bench.set_defaults(run=run)


def _add_simulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    simulate = commands.add_parser(
        "simulate",
        help="weigh the plans of a collective for islands that need not exist",
        description="Weigh the plans of a collective in a model, against the bound (docs/plans.md). Nothing runs.",
        epilog="example: hetccl simulate all_reduce --islands 8+4+2 --sizes 1K,1M,1G --json rows.json",
    )
    simulate.add_argument("op", metavar="OP", choices=sorted(PLANS), help=", ".join(sorted(PLANS)))
    simulate.add_argument(
        "--islands", metavar="N+N", type=parse_islands, default="8+8", help="ranks of each island (default: 8+8)"
    )
    simulate.add_argument(
        "--rails", metavar="N+N", type=parse_islands, help="wires out of each island (default: one each)"
    )
    simulate.add_argument("--sizes", metavar="SIZES", type=parse_sizes, default="1K,1M,1G", help="default: 1K,1M,1G")
    for name, default, unit in (
        ("inside", 300.0, "GB/s of a rank inside its island, each way"),
        ("wire", 25.0, "GB/s of a wire, each way"),
        ("inside-latency", 5.0, "us of a message inside an island"),
        ("wire-latency", 10.0, "us of a message between islands"),
        ("overhead", 0.5, "us that a rank works for each peer"),
    ):
        simulate.add_argument(
            f"--{name}", metavar="X", type=_positive, default=default, help=f"{unit} (default: {default:g})"
        )
    simulate.add_argument("--json", metavar="FILE", type=Path, help="write the rows to FILE as JSON")

    def run(options: argparse.Namespace) -> None:
        rails = options.rails or (1,) * len(options.islands)
        if len(rails) != len(options.islands):
            simulate.error(f"--rails has {len(rails)} numbers, --islands {len(options.islands)}: one each is needed")
        machine = Machine(
            options.islands,
            rails,
            options.inside * 1e9,
            options.wire * 1e9,
            options.inside_latency / 1e6,
            options.wire_latency / 1e6,
            options.overhead / 1e6,
        )
        weigh(options.op, options.sizes, machine, options.json)

    simulate.set_defaults(run=run)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
