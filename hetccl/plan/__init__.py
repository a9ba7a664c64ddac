"""Collectives as data: what one rank does for one collective. Pure."""

from hetccl.plan.schedule import Buffer, Operand, Schedule, Space, Step, Wire

__all__ = ["Buffer", "Operand", "Schedule", "Space", "Step", "Wire"]
