"""YAML files with jobs and profiles in them."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hettrain.api import HetPoolProfile, HetTrainingJob, InvalidDocument, Problem, load, load_profile

__all__ = ["Documents", "InvalidFile", "read"]

KINDS = ("HetTrainingJob", "HetPoolProfile")


class InvalidFile(ValueError):
    """A file that is not what it should be. The text has one problem a line, each with its place."""


@dataclass
class Documents:
    """What a file holds, in its order."""

    jobs: list[HetTrainingJob] = field(default_factory=list)
    profiles: dict[str, HetPoolProfile] = field(default_factory=dict)

    def only_job(self, source: str) -> HetTrainingJob:
        """The one job of a file. Raises InvalidFile."""
        if len(self.jobs) == 1:
            return self.jobs[0]
        raise InvalidFile(f"{source}: found {len(self.jobs)} HetTrainingJobs; expected one")


def read(source: str) -> Documents:
    """The jobs and profiles of a file, or of standard input where it is called `-`. Raises InvalidFile."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
        parsed = [document for document in yaml.safe_load_all(text) if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{source}: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise InvalidFile(f"{source}: no YAML: {' '.join(str(error).split())}") from None
    documents, problems = Documents(), []
    for number, document in enumerate(parsed):
        where = source if len(parsed) == 1 else f"{source}, document {number + 1}"
        try:
            _add(documents, document)
        except InvalidDocument as error:
            problems += [f"{where}: {problem}" for problem in error.problems]
    if not parsed:
        problems.append(f"{source}: the file is empty; expected a HetTrainingJob")
    if problems:
        raise InvalidFile("\n".join(problems))
    return documents


def _add(documents: Documents, document: Any) -> None:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "HetPoolProfile":
        profile = load_profile(document)
        documents.profiles[profile.metadata.name] = profile
    elif kind == "HetTrainingJob" or not isinstance(document, dict):
        documents.jobs.append(load(document))
    else:
        found = "nothing" if kind is None else repr(kind)
        raise InvalidDocument([Problem("kind", found, f"expected one of {', '.join(KINDS)}")])
