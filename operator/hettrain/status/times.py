"""Times as Kubernetes writes them: UTC, whole seconds."""

from datetime import UTC, datetime

__all__ = ["parse_time", "write_time"]


def parse_time(text: str) -> datetime:
    """A time of an object's metadata or status."""
    return datetime.fromisoformat(text)


def write_time(moment: datetime) -> str:
    """The opposite of parse_time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
