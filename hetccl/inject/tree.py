"""The hetccl tree: what is mounted into images that are not ours. docs/architecture.md describes it."""

import os
import shutil
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
BOOTSTRAP = Path(__file__).parent / "bootstrap"
MARK = Path("bootstrap", "hetccl_bootstrap.py")
"""The file that tells a hetccl tree from any other folder."""

_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")


class NotATreeError(OSError):
    """The target holds something of ours by name that is not of a hetccl tree."""


def write_tree(target: Path, *, link: bool = False) -> None:
    """Write the tree of the installed hetccl to the folder `target`, which is made where it is missing.

    With `link`, the package is a symbolic link to the installed one: for trees that stay on this machine.
    An older tree there is replaced, `bootstrap` last: a process that starts meanwhile finds a whole tree or none.
    Everything is readable by all users. Raises OSError where the target cannot be written, NotATreeError where it holds
    a folder of the same name that is something else.
    """
    parts = ("hetccl", "site", "bootstrap")
    taken = [name for name in parts if (target / name).exists()]
    if taken and not (target / MARK).is_file():
        raise NotATreeError(f"{target} is no hetccl tree, but has '{taken[0]}' already: choose an empty folder")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hetccl-", dir=target) as name:
        new, old = Path(name, "new"), Path(name, "old")
        old.mkdir()
        shutil.copytree(BOOTSTRAP, new / "bootstrap", ignore=shutil.ignore_patterns("__init__.py", "__pycache__"))
        if link:
            (new / "hetccl").symlink_to(PACKAGE)
        else:
            shutil.copytree(PACKAGE, new / "hetccl", ignore=_SKIPPED)
        wheels = PACKAGE.parent / "site"
        if (PACKAGE.parent / MARK).is_file() and wheels.is_dir():
            shutil.copytree(wheels, new / "site", symlinks=True)
        else:
            (new / "site").mkdir()
        _open_to_all(new)
        for program in ("launch", "preflight"):
            (new / "bootstrap" / program).chmod(0o755)
        for part in reversed(parts):
            if os.path.lexists(target / part):
                (target / part).rename(old / part)
        for part in parts:
            (new / part).rename(target / part)


def _open_to_all(folder: Path) -> None:
    """Let every user read the files and run those that the owner may run."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o644 | (0o111 if mode & 0o100 else 0))
