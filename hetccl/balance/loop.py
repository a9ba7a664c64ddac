"""The balance for loops that hetccl cannot see into: shares asked for, losses weighed, both by the loop itself."""

import torch

from hetccl.balance import install

__all__ = ["Balance"]


class Balance:
    """For data parallel loops without a DistributedSampler. The world's process group must exist.

        balance = Balance(samples=32)                 # what each rank would have, all alike
        for step in range(steps):
            batch = draw(balance.size())              # what this rank has in this step
            balance.weigh(criterion(model(batch))).backward()

    All ranks make as many steps. Where the job has no load balance the sizes are even and losses stay as they are; they
    do under DistributedDataParallel too, whose gradients are weighed anyway.
    """

    def __init__(self, samples: int) -> None:
        if samples < 1:
            raise ValueError(f"samples is {samples}: every rank has at least one a step")
        self._samples = samples

    def size(self) -> int:
        """The samples of this rank in the step that now begins."""
        balancer = install.active()
        if balancer is None:
            return self._samples
        share = balancer.share(balancer.number, self._samples * balancer.ranks)
        balancer.begin(share, ahead=0)
        return share.size

    def weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """`loss`, a mean over this rank's samples, so weighed that the mean of all ranks' gradients is the batch's."""
        balancer = install.active()
        if balancer is None or balancer.weighs:
            return loss
        if loss.requires_grad:
            loss.register_hook(lambda _: balancer.backward())  # type: ignore[no-untyped-call]
        return loss * balancer.factor
