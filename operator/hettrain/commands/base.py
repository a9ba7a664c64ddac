"""What the commands share: exit codes, failures with a text for the reader, and flags."""

import argparse
import re

__all__ = [
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "NO_READER",
    "REFUSED",
    "TIMED_OUT",
    "WRONG_INPUT",
    "CommandError",
    "add_file",
    "add_job",
    "add_output",
    "add_target",
    "duration",
]

DONE, FAILED, WRONG_INPUT, TIMED_OUT, REFUSED = 0, 1, 2, 3, 4
INTERRUPTED, NO_READER = 128 + 2, 128 + 13

DURATION = re.compile(r"(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


class CommandError(Exception):
    """A command that cannot go on. The text is for the reader; `code` is the exit code."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text)
        self.code = code


def duration(text: str) -> int:
    """Seconds of a text such as 90, 90s, 10m or 1h30m; argparse shows what is raised."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a duration such as 90s, 10m or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def add_file(parser: argparse.ArgumentParser) -> None:
    """The argument of commands that read one job from a file."""
    parser.add_argument(
        "file", metavar="FILE", help="YAML with one HetTrainingJob, and its profiles if any; - is stdin"
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """The flags that say which cluster and namespace."""
    parser.add_argument("-n", "--namespace", metavar="NAME", help="the namespace; default: the kubeconfig context's")
    parser.add_argument("--context", metavar="NAME", help="the context of the kubeconfig; default: its current one")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="the kubeconfig; default: $KUBECONFIG, else ~/.kube/config, else the pod's"
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    """The argument of commands for one job of a cluster."""
    parser.add_argument("name", metavar="NAME", help="the HetTrainingJob")
    add_target(parser)


def add_output(parser: argparse.ArgumentParser, watch: str) -> None:
    """How a command shows what it found; `watch` says what --watch waits for."""
    parser.add_argument("-o", "--output", choices=["json", "yaml"], help="a document for scripts in place of tables")
    parser.add_argument("-w", "--watch", action="store_true", help=watch)
