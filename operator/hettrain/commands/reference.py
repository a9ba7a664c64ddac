"""docs/cli.md from the parsers: `python -m hettrain.commands.reference` writes it."""

import argparse
from collections.abc import Iterator

from hettrain.api.crd import ROOT
from hettrain.cli import COMMANDS, build_parser

__all__ = ["PATH", "page"]

PATH = "docs/cli.md"

HEAD = """\
# Command line

<!-- Made by `python -m hettrain.commands.reference` from operator/hettrain/commands. -->

`pip install hetccl[operator]` puts `hettrain` on the PATH, and `kubectl-hettrain`, by which every command is also
`kubectl hettrain COMMAND` (flags go behind the command). `hettrain COMMAND --help` shows what is below.

The cluster is the one of `--kubeconfig`, else of `KUBECONFIG`, else of `~/.kube/config`, else that of the pod it runs
in. On a terminal there are colours and tables that fold; in a pipe plain columns, with nothing cut; with `-o json` or
`-o yaml` a document. With `--watch`, one document follows another.

Completion: `source <(hettrain completion bash)`, `eval "$(hettrain completion zsh)"` behind `compinit`, or
`hettrain completion fish | source`. It completes commands and flags, not the names of jobs, and not behind
`kubectl hettrain`.

A command imports only what it needs: `validate` loads neither the Kubernetes client nor the operator.

## Exit codes

| code | |
|---|---|
| 0 | done. `wait`: what was waited for has come |
| 1 | failed. `run`: the job failed. `wait`: the opposite has come, or the job was deleted. `logs`: there are no pods |
| 2 | wrong input: a flag, a file |
| 3 | `wait`: timed out |
| 4 | the cluster refused or did not answer: no such job, no access, no CRD, no API server |
| 130 | interrupted |
| 141 | whoever read the output, as in `logs NAME \\| head`, went away |

`wait --for=running` is also reached by a job that is Complete: it ran. A status that the operator has not yet brought
up to the spec is no answer, so that `hettrain resume NAME && hettrain wait NAME --for=running` waits for the new pods.
"""


def page() -> str:
    """The page."""
    found = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return "\n".join([HEAD, *(_command(name, parser) for name, parser in found.choices.items())])


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    example = f"    hettrain {name} {COMMANDS[name].example}\n"
    rows = "".join(f"| {flag} | {text} |\n" for flag, text in _arguments(parser))
    return f"## hettrain {name}\n\n{parser.description}\n\n{example}\n| | |\n|---|---|\n{rows}"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        values = "|".join(action.choices) if action.choices else action.metavar or action.dest.upper()
        takes = "" if action.nargs == 0 else f" {values}"
        shown = ", ".join(f"`{flag}{takes}`" for flag in action.option_strings) or f"`{values}`"
        text = (action.help or "").replace("%%", "%")
        default = action.default
        if isinstance(default, str | int | float) and not isinstance(default, bool) and "default" not in text:
            text += f" (default: {default})"
        yield shown.replace("|", "\\|"), text


def main() -> None:
    """Write the page."""
    (ROOT / PATH).write_text(page())
    print(PATH)


if __name__ == "__main__":
    main()
