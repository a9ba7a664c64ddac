"""What runs schedules: the C core where it is built, else plain Python, which is the reference."""

from hetccl.runners.base import Failure, Group, Link, Runner, Status
from hetccl.runners.select import runner

__all__ = ["Failure", "Group", "Link", "Runner", "Status", "runner"]
