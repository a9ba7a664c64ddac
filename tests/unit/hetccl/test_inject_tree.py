"""`hetccl inject` and the launcher: files only, torch is not involved."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hetccl.inject import tree
from hetccl.inject.tree import PACKAGE, NotATreeError, write_tree


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def launch(target: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": os.environ["PATH"]}
    launcher = target / "bootstrap" / "launch"
    return subprocess.run(
        [launcher, *command], env={**kept, **environment}, capture_output=True, text=True, timeout=30, check=False
    )


def test_the_tree_holds_the_package_a_place_for_wheels_and_a_bootstrap_folder_that_hides_nothing(
    tmp_path: Path,
) -> None:
    write_tree(tmp_path / "tree")
    assert {path.name for path in (tmp_path / "tree").iterdir()} == {"bootstrap", "hetccl", "site"}
    assert files(tmp_path / "tree" / "bootstrap") == {
        "launch",
        "preflight",
        "sitecustomize.py",
        "hetccl_bootstrap.py",
        "hetccl_bootstrap-1.dist-info/METADATA",
        "hetccl_bootstrap-1.dist-info/entry_points.txt",
    }
    copied = files(tmp_path / "tree" / "hetccl")
    assert copied == {name for name in files(PACKAGE) if "__pycache__" not in name}
    assert "inject/bootstrap/hetccl_bootstrap.py" in copied


def test_every_user_can_read_the_tree_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        write_tree(tmp_path / "tree")
    finally:
        os.umask(umask)
    for path in (tmp_path / "tree").rglob("*"):
        assert path.stat().st_mode & 0o444 == 0o444, path
        assert not path.is_dir() or path.stat().st_mode & 0o111 == 0o111, path
    assert os.access(tmp_path / "tree" / "bootstrap" / "launch", os.X_OK)


def test_a_linked_tree_follows_the_package(tmp_path: Path) -> None:
    write_tree(tmp_path, link=True)
    assert (tmp_path / "hetccl").readlink() == PACKAGE
    assert (tmp_path / "bootstrap" / "hetccl_bootstrap.py").is_file()


def test_a_tree_is_replaced_whole(tmp_path: Path) -> None:
    write_tree(tmp_path, link=True)
    write_tree(tmp_path)
    (tmp_path / "hetccl" / "of_an_older_release.py").touch()
    write_tree(tmp_path)
    assert not (tmp_path / "hetccl" / "of_an_older_release.py").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"bootstrap", "hetccl", "site"}
    assert PACKAGE.is_dir(), "what a link led to is still there"


def test_a_tree_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path)
    before = files(tmp_path)

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tree, "_open_to_all", full)
    with pytest.raises(OSError, match="No space left"):
        write_tree(tmp_path)
    assert files(tmp_path) == before


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "theirs").touch()
    with pytest.raises(NotATreeError, match="has 'site' already: choose an empty folder"):
        write_tree(tmp_path)
    assert files(tmp_path) == {"site/theirs"}


def test_the_command_writes_a_tree_without_importing_torch(tmp_path: Path) -> None:
    check = (
        "import sys; from hetccl.cli import main; main(['inject', sys.argv[1]]);"
        "assert not {name.split('.')[0] for name in sys.modules} & {'torch', 'numpy'}"
    )
    environment = {**os.environ, "HETCCL_VENDOR": "nvidia"}
    subprocess.run([sys.executable, "-c", check, tmp_path / "tree"], env=environment, check=True, timeout=30)
    assert (tmp_path / "tree" / "bootstrap" / "launch").is_file()


def test_the_command_says_what_is_wrong_with_the_folder(tmp_path: Path) -> None:
    (tmp_path / "hetccl").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "hetccl", "inject", tmp_path], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == f"hetccl inject: {tmp_path} is no hetccl tree, but has 'hetccl' already: choose an empty folder\n"
    )


def test_launch_puts_the_bootstrap_before_the_pythonpath_that_is_there(tmp_path: Path) -> None:
    write_tree(tmp_path / "a tree", link=True)
    bootstrap = tmp_path / "a tree" / "bootstrap"
    show = ["sh", "-c", 'printf "%s|%s|%s" "$PYTHONPATH" "$1" "$2"', "show", "with space", ""]
    assert launch(tmp_path / "a tree", *show).stdout == f"{bootstrap}|with space|"
    assert launch(tmp_path / "a tree", *show, PYTHONPATH="/of/the/image:").stdout.startswith(
        f"{bootstrap}:/of/the/image:|"
    )


def test_launch_is_the_command_itself(tmp_path: Path) -> None:
    write_tree(tmp_path, link=True)
    done = launch(tmp_path, "sh", "-c", "exit 7")
    assert done.returncode == 7


def test_launch_without_a_command_exits_64_with_its_usage(tmp_path: Path) -> None:
    write_tree(tmp_path, link=True)
    done = launch(tmp_path)
    assert done.returncode == 64
    assert done.stderr.startswith("usage: ")
    assert done.stderr.rstrip().endswith("launch CMD [ARGUMENT...]")
