"""The commands' flags: each has an example, the page about them is up to date, and no command waits for another's."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from hettrain.cli import COMMANDS, build_parser, main
from hettrain.commands import reference
from hettrain.commands.base import duration

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"example: hettrain {name} " in " ".join(capsys.readouterr().out.split())
    example = COMMANDS[name].example.split(" | ", maxsplit=1)[0]
    assert build_parser().parse_args([name, *example.split()]).command == name


def test_the_page_about_the_command_line_is_made_from_the_parsers() -> None:
    assert (ROOT / reference.PATH).read_text() == reference.page(), "run python -m hettrain.commands.reference"


def test_validate_imports_neither_the_kubernetes_client_nor_the_operator(tmp_path: Path) -> None:
    code = (
        "import sys; from hettrain.cli import main\n"
        "try: main(['validate', sys.argv[1]])\n"
        "finally: print({'kubernetes', 'kopf', 'aiohttp', 'rich'} & set(sys.modules))"
    )
    job = ROOT / "examples" / "quickstart" / "job.yaml"
    done = subprocess.run([sys.executable, "-c", code, job], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [f"{job}: HetTrainingJob quickstart is valid", "set()"]


def test_as_a_plug_in_of_kubectl_it_calls_itself_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-hettrain", "wait", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert "usage: kubectl hettrain wait" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_its_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", shell])
    assert ended.value.code == 0
    script = capsys.readouterr().out
    for word in (*COMMANDS, "kubeconfig", "timeout", "hetccl-image", "max-streams"):
        assert word in script, word


def test_bash_completes_commands_and_flags() -> None:
    script = "source <({0} -m hettrain.cli completion bash); COMP_WORDS=(hettrain {1}); COMP_CWORD={2}; "
    script += "_shtab_hettrain; echo ${{COMPREPLY[@]}}"

    def complete(*words: str) -> list[str]:
        asked = script.format(sys.executable, " ".join(words), len(words))
        return subprocess.run(
            ["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()

    assert complete("s") == ["status", "suspend"]
    assert complete("wait", "--t") == ["--timeout"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604800), ("0", 0)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1x", "m", "-5", "1.5h", "30m1h"])
def test_what_is_no_duration_is_refused_with_what_was_found(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"found '.*'; expected a duration"):
        duration(text)
