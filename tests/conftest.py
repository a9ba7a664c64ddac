"""Fixtures that several test folders share."""

from tests.cluster.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]
