"""Files that commands are given."""

from hettrain import documents
from hettrain.api import HetPoolProfile, HetTrainingJob
from hettrain.commands.base import WRONG_INPUT, CommandError

__all__ = ["read", "read_job"]


def read(file: str) -> documents.Documents:
    """What a file holds. Raises CommandError."""
    try:
        return documents.read(file)
    except documents.InvalidFile as error:
        raise CommandError(str(error), WRONG_INPUT) from None


def read_job(file: str) -> tuple[HetTrainingJob, dict[str, HetPoolProfile]]:
    """The one job of a file, and the profiles beside it. Raises CommandError."""
    found = read(file)
    try:
        return found.only_job(file), found.profiles
    except documents.InvalidFile as error:
        raise CommandError(str(error), WRONG_INPUT) from None
