"""Rendering the chart as its users do."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import REPOSITORY, Unavailable, find_binaries

CHART = REPOSITORY / "charts" / "hettrain"
Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture(scope="session")
def helm() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run helm with arguments; skips where there is no helm."""
    try:
        binary = find_binaries() / "helm"
    except Unavailable as reason:
        pytest.skip(str(reason))

    def run(*argv: object, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [str(part) for part in (binary, *argv)]
        return subprocess.run(command, capture_output=True, text=True, check=False, input=stdin)

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., "subprocess.CompletedProcess[str]"]) -> Render:
    """Render the chart with values; returns its manifests."""

    def manifests(**values: object) -> list[Manifest]:
        chart: Path = CHART
        arguments = ("template", "test", chart, "--namespace", "system", "--values", "-")
        done = helm(*arguments, stdin=json.dumps(values))
        assert done.returncode == 0, done.stderr
        return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]

    return manifests
