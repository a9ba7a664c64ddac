"""Runs when Python starts: has hetccl wait for torch, then runs the sitecustomize that this one shadows, if any."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

# It lies beside this file, in a folder that is on sys.path where this runs and nowhere else.
import hetccl_bootstrap  # type: ignore[import-not-found]

hetccl_bootstrap.watch()

_here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 -- pathlib is slow to import, and this is every Python
_shadowed = PathFinder.find_spec(
    "sitecustomize", [folder for folder in sys.path if os.path.realpath(folder or ".") != _here]
)
if _shadowed is not None and _shadowed.loader is not None:
    _module = module_from_spec(_shadowed)
    sys.modules["sitecustomize"] = _module
    _shadowed.loader.exec_module(_module)
