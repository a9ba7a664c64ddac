"""The command line: `hettrain COMMAND`. Only the command that is asked for is imported.

Exit codes: 0 done, 1 failed, 2 wrong input, 3 timed out, 4 refused by the cluster, 130 interrupted.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from hettrain.commands.base import INTERRUPTED, NO_READER, CommandError

__all__ = ["COMMANDS", "build_parser", "main"]


@dataclass(frozen=True)
class Command:
    """A command: what its line in --help says, an example of its arguments, and MODULE:FUNCTION that adds its flags."""

    help: str
    example: str
    source: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Import the command and let it add its flags."""
        module, _, function = self.source.partition(":")
        getattr(importlib.import_module(f"hettrain.commands.{module}"), function)(parser)


COMMANDS = {
    "validate": Command("check files without a cluster", "job.yaml", "validate:add"),
    "render": Command("print what the operator would create for a job", "job.yaml | less", "render:add"),
    "run": Command(
        "run a job on this machine: processes instead of pods, GPUs simulated on the CPU",
        "--local examples/quickstart/job.yaml",
        "run:add",
    ),
    "status": Command("show a job's conditions, pools, ranks and first failure", "train -n team --watch", "status:add"),
    "logs": Command("show the logs of all replicas as one", "train --follow --pool mi300 --since 10m", "logs:add"),
    "events": Command("show what happened to a job and its pods", "train --watch", "events:add"),
    "top": Command("show which jobs or pods have which GPUs, and what they use", "-A --watch", "top:add"),
    "wait": Command("wait for a job, for scripts", "train --for=complete --timeout 12h", "wait:add"),
    "suspend": Command("end a job's pods and keep the job", "train", "lifecycle:add_suspend"),
    "resume": Command("start a suspended job's next attempt", "train", "lifecycle:add_resume"),
    "restart": Command("start a job's gang over, at nobody's expense", "train", "lifecycle:add_restart"),
    "delete": Command("delete a job and its pods", "train", "lifecycle:add_delete"),
    "operator": Command(
        "serve the HetTrainingJobs of a cluster",
        "--hetccl-image registry.example/hettrain/hetccl:0.1.0",
        "operator:add",
    ),
    "webhook": Command(
        "answer the API server's questions about jobs before they are stored",
        "--namespace hettrain-system --secret hettrain-webhook --service hettrain-webhook "
        "--configuration hettrain --hetccl-image registry.example/hettrain/hetccl:0.1.0",
        "webhook:add",
    ),
    "completion": Command("print a script that completes commands and flags", "bash", "completion:add"),
}


def build_parser(prog: str = "hettrain", wanted: Container[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser, with the flags of the commands that are wanted."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Training jobs over pools of several GPU vendors.",
        epilog=f"example: {prog} run --local examples/quickstart/job.yaml",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        description = f"{command.help[0].upper()}{command.help[1:]}."
        epilog = f"example: {prog} {name} {command.example}"
        added = commands.add_parser(name, help=command.help, description=description, epilog=epilog)
        if name in wanted:
            command.add(added)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (else sys.argv) names, and exit with its code."""
    given = sys.argv[1:] if arguments is None else arguments
    prog = "kubectl hettrain" if Path(sys.argv[0]).name == "kubectl-hettrain" else "hettrain"
    options = build_parser(prog, given[:1]).parse_args(given)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(error, file=sys.stderr)
        code = error.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # Python flushes once more at exit: there must be somebody to read it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NO_READER
    sys.exit(code)


if __name__ == "__main__":
    main()
