"""What runs schedules: the C core where it is built, else plain Python, which is the reference."""

from hetccl.runners.base import Failure, Group, Launch, Link, Runner, Status, Ticket, Watch
from hetccl.runners.select import runner

__all__ = ["Failure", "Group", "Launch", "Link", "Runner", "Status", "Ticket", "Watch", "runner"]
