"""`hettrain logs`: the logs of all replicas as one."""

import argparse
import heapq
from collections.abc import Iterator, Sequence

from rich.text import Text

from hettrain.commands.base import DONE, FAILED, WRONG_INPUT, CommandError, add_job, duration
from hettrain.commands.cluster import Cluster, Object, Refused, Unreachable, connect
from hettrain.commands.follow import Line, follow
from hettrain.commands.screen import Screen, colours
from hettrain.plan.pods import trainer_name
from hettrain.status.pods import Pod, observe

__all__ = ["add"]

MAX_STREAMS = 128


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_job(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over, over its restarts")
    parser.add_argument("--pool", metavar="POOL", action="append", help="only this pool (may be given several times)")
    parser.add_argument("--since", metavar="TIME", type=duration, help="only the last 90s, 10m, 1h30m, ...")
    parser.add_argument("--tail", metavar="N", type=int, help="only the last N lines of each replica")
    parser.add_argument(
        "--attempt", metavar="N", type=int, help="the pods of this attempt, if they are still there; default: current"
    )
    parser.add_argument("--timestamps", action="store_true", help="put the time in front of each line")
    parser.add_argument(
        "--max-streams",
        metavar="N",
        type=int,
        default=MAX_STREAMS,
        help=f"how many logs may be read at once (default: {MAX_STREAMS})",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    cluster, screen = connect(options), Screen()
    job = cluster.job(options.name)
    pools = [pool["name"] for pool in job["spec"]["pools"]]
    unknown = sorted(set(options.pool or ()) - set(pools))
    if unknown:
        raise CommandError(f"there is no pool {unknown[0]}: {options.name} has {', '.join(pools)}", WRONG_INPUT)
    wanted, printer = set(options.pool or pools), _Printer(screen, pools, options.timestamps)
    if options.follow:
        for line in follow(cluster, job, wanted, options):
            printer.show(line)
        return DONE
    attempt = options.attempt if options.attempt is not None else job.get("status", {}).get("attempt", 0)
    pods = [pod for pod in map(observe, cluster.pods(options.name, attempt)) if pod.pool in wanted]
    if not pods:
        screen.note(f"{options.name}: attempt {attempt} has no pods: `hettrain events {options.name}` says why")
        return FAILED
    if len(pods) > options.max_streams:
        raise CommandError(
            f"{len(pods)} logs are more than --max-streams {options.max_streams}: choose with --pool, or raise it",
            WRONG_INPUT,
        )
    streams = [_lines(cluster, screen, pod, options) for pod in sorted(pods, key=lambda pod: pod.key)]
    for line in heapq.merge(*streams, key=lambda line: line.moment):
        printer.show(line)
    return DONE


def _lines(cluster: Cluster, screen: Screen, pod: Pod, options: argparse.Namespace) -> Iterator[Line]:
    raw: Object = dict(pod.raw)
    try:
        for text in cluster.log(pod.name, trainer_name(raw["spec"]), since=options.since, tail=options.tail):
            yield Line.of(pod, text)
    except Unreachable:
        raise
    except Refused as error:
        if error.status == 403:
            raise
        # One that has not started has no log; the others' are worth showing.
        screen.note(f"{pod.name}: {error}")


class _Printer:
    def __init__(self, screen: Screen, pools: Sequence[str], timestamps: bool) -> None:
        self._console, self._colours, self._timestamps = screen.console, colours(pools), timestamps

    def show(self, line: Line) -> None:
        attempt = f" attempt {line.attempt}" if line.attempt else ""
        prefix = f"{line.pool}-{line.index}{attempt} | "
        if self._timestamps:
            prefix = f"{line.time} {prefix}"
        if self._console.is_terminal:
            self._console.print(Text(prefix, style=self._colours[line.pool]) + Text.from_ansi(line.text))
        else:
            print(prefix + line.text, flush=True)
