"""Builds the C core with the package. Without a C compiler the package works all the same, slower, and says so."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CORE = Path("hetccl") / "core"
LIBRARY = "libhetccl.so"
# -fno-trapping-math: nobody reads the floating point flags, and conversions vectorise.
FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O3",
    "-fno-trapping-math",
    "-fPIC",
    "-fvisibility=default",
    "-shared",
    "-pthread",
]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wno-unknown-pragmas", "-Werror"]


class CoreBuildHook(BuildHookInterface):
    """Compiles hetccl/core/*.c into hetccl/core/libhetccl.so: one library for every Python and torch."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel or an editable install is put together. `CC` and `CFLAGS` are respected."""
        if self.target_name != "wheel":
            return
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        if shutil.which(compiler[0]) is None:
            compiler = ["cc"]
        if shutil.which(compiler[0]) is None:
            print("hetccl: no C compiler: the plain Python runner will be used", file=sys.stderr)
            return
        root = Path(self.root)
        target = root / CORE / LIBRARY
        sources = sorted((root / CORE).glob("*.c"))
        extra = shlex.split(os.environ.get("CFLAGS", ""))
        fresh = target.with_suffix(f".{os.getpid()}")
        subprocess.run([*compiler, *FLAGS, *WARNINGS, *extra, "-o", fresh, *sources], check=True)
        fresh.replace(target)
        build_data["artifacts"].append(str(CORE / LIBRARY))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
