"""The command line: `hettrain COMMAND`. Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import yaml

from hettrain import documents
from hettrain.local.node import CannotRun
from hettrain.local.run import Options, run_locally
from hettrain.options import add_options, settings_from
from hettrain.plan import CannotPlan, Context, members, plan
from hettrain.serve import run as serve

__all__ = ["main"]

WRONG_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (else sys.argv) names, and exit with its code."""
    parser = argparse.ArgumentParser(
        prog="hettrain",
        description="Training jobs over pools of several GPU vendors.",
        epilog="example: hettrain run --local examples/quickstart/job.yaml",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_add_validate, _add_render, _add_run, _add_operator):
        add(commands)
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        code = run(options)
    except (documents.InvalidFile, CannotRun, CannotPlan) as error:
        print(error, file=sys.stderr)
        code = WRONG_INPUT
    sys.exit(code)


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add(commands: Commands, name: str, help_: str, example: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.", epilog=f"example: {example}"
    )


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", metavar="FILE", help="YAML with one HetTrainingJob, and its profiles if any; - is stdin"
    )


def _add_validate(commands: Commands) -> None:
    command = _add(commands, "validate", "check files without a cluster", "hettrain validate job.yaml")
    command.add_argument("files", metavar="FILE", nargs="+", help="YAML with jobs and profiles; - is standard input")

    def run(options: argparse.Namespace) -> int:
        problems = []
        for file in options.files:
            try:
                found = documents.read(file)
            except documents.InvalidFile as error:
                problems.append(str(error))
            else:
                for kind, name in [
                    *(("HetTrainingJob", job.metadata.name) for job in found.jobs),
                    *(("HetPoolProfile", name) for name in found.profiles),
                ]:
                    print(f"{file}: {kind} {name} is valid")
        if problems:
            raise documents.InvalidFile("\n".join(problems))
        return 0

    command.set_defaults(run=run)


def _add_render(commands: Commands) -> None:
    command = _add(
        commands, "render", "print what the operator would create for a job", "hettrain render job.yaml | less"
    )
    _add_file(command)
    command.add_argument(
        "--delivery", choices=["ImageVolume", "InitContainer"], default="ImageVolume", help="what Auto means"
    )
    command.add_argument("--hetccl-image", metavar="REF", default="hetccl:latest", help="image of jobs that name none")

    def run(options: argparse.Namespace) -> int:
        found = documents.read(options.file)
        job = found.only_job(options.file)
        context = Context(delivery=options.delivery, image=options.hetccl_image, profiles=found.profiles)
        wanted = plan(job, job.status.attempt, members(job.spec), context)
        for warning in wanted.warnings:
            print(warning, file=sys.stderr)
        manifests = [wanted.service, wanted.token, *wanted.config_maps, *(pod.manifest for pod in wanted.pods)]
        yaml.safe_dump_all(manifests, sys.stdout, sort_keys=False)
        return 0

    command.set_defaults(run=run)


def _add_run(commands: Commands) -> None:
    command = _add(
        commands,
        "run",
        "run a job on this machine: processes instead of pods, GPUs simulated on the CPU",
        "hettrain run --local examples/quickstart/job.yaml",
    )
    _add_file(command)
    command.add_argument(
        "--local", action="store_true", required=True, help="on this machine (kubectl apply is for clusters)"
    )
    command.add_argument("--workdir", metavar="DIR", type=Path, help="where replicas run (default: the file's folder)")
    command.add_argument("--log-dir", metavar="DIR", type=Path, help="write each replica's output to DIR/POD.log too")
    command.add_argument("--json", metavar="FILE", type=Path, help="write the result to FILE as JSON")

    def run(options: argparse.Namespace) -> int:
        found = documents.read(options.file)
        job = found.only_job(options.file)
        folder = options.workdir or (Path.cwd() if options.file == "-" else Path(options.file).resolve().parent)
        if not folder.is_dir():
            raise documents.InvalidFile(f"--workdir {folder}: there is no such folder")
        return run_locally(job, found.profiles, Options(folder, options.log_dir, options.json))

    command.set_defaults(run=run)


def _add_operator(commands: Commands) -> None:
    command = _add(
        commands,
        "operator",
        "serve the HetTrainingJobs of a cluster",
        "hettrain operator --hetccl-image registry.example/hettrain/hetccl:0.1.0",
    )
    add_options(command)
    command.set_defaults(run=lambda options: serve(settings_from(options)))


if __name__ == "__main__":
    main()
