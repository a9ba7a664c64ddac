"""Shares of each global batch in proportion to the ranks' speeds.

Behind a script's back for DistributedDataParallel with a DistributedSampler; `Balance` is for loops of other kinds.
docs/balance.md says which case is which.
"""

from hetccl.balance.loop import Balance

__all__ = ["Balance"]
