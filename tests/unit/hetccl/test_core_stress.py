"""The C core under stress: by the compiler's sanitizers, and on another architecture, which a program interprets."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hatch_build import FLAGS, WARNINGS

CORE = Path(__file__).parents[3] / "hetccl" / "core"
STRESS = Path(__file__).with_name("core_stress.c")
SOURCES = [str(STRESS), *map(str, sorted(CORE.glob("*.c")))]
SANITIZED = ["-std=c11", "-D_GNU_SOURCE", "-DHET_NO_CLONES", "-O1", "-g", "-fno-sanitize-recover=all"]


def build(folder: Path, compiler: str, flags: list[str]) -> Path:
    """The stress program, made once for the same flags."""
    program = folder / re.sub(r"\W+", "_", compiler + flags[-1])
    if program.exists():
        return program
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    command = [compiler, "-pthread", f"-I{CORE}", *flags, "-o", str(program), *SOURCES]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in made.stderr:
        pytest.skip(f"{compiler} has no {flags[-1]}: {made.stderr.splitlines()[-1]}")
    assert made.returncode == 0, made.stderr
    return program


def stress(command: list[str | Path], ranks: int, groups: int, turns: int) -> None:
    arguments = [*command, str(ranks), str(groups), str(turns)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize(("ranks", "groups", "turns"), [(2, 1, 60), (3, 3, 16), (5, 2, 6)])
def test_ranks_and_threads_do_not_trip_the_sanitizers(
    tmp_path_factory: pytest.TempPathFactory, sanitizer: str, ranks: int, groups: int, turns: int
) -> None:
    flags = [*SANITIZED, "-fno-omit-frame-pointer", f"-fsanitize={sanitizer}"]
    stress([build(tmp_path_factory.getbasetemp(), "gcc", flags)], ranks, groups, turns)


def test_the_core_compiles_for_aarch64_without_a_warning_and_holds_under_stress(tmp_path: Path) -> None:
    program = build(tmp_path, "aarch64-linux-gnu-gcc", [*(f for f in FLAGS if f != "-shared"), *WARNINGS, "-static"])
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("it compiles; no qemu-user to run it")
    stress([emulator, program], 2, 2, 12)
