"""What hetccl raises. Every text says what happened, on which rank, and what was waited for or expected."""

__all__ = ["AuthenticationError", "CollectiveError", "HetcclError", "ResourceError"]


class HetcclError(RuntimeError):
    """Anything that hetccl raises."""


class CollectiveError(HetcclError):
    """A collective did not end: timeout, a rank lost, an abort, ranks that call different collectives."""


class AuthenticationError(HetcclError):
    """A rank does not have the job's token."""


class ResourceError(HetcclError):
    """The machine lacks something, or a rank cannot be reached."""
