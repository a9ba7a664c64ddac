"""DataLoaders with a DistributedSampler, whose batches follow the shares. Nothing else of them changes."""

import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from hetccl.balance.balancer import Balancer, Share

__all__ = ["share_loaders"]

_logger = logging.getLogger("hetccl")


class SharedBatches:
    """Stands for the batch sampler of `loader`: each batch of all ranks together is the one that it would have been.

    A pass is shared where `training()` is true when it begins; any other is the loader's own. As long as all ranks have
    as many, every rank's batches are those that it would have had, sample for sample.
    """

    def __init__(self, loader: "DataLoader[Any]", balancer: Balancer, training: Callable[[], bool]) -> None:
        self._own: Any = loader.batch_sampler
        self._balancer, self._training = balancer, training
        self.ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self.drawn: deque[Share] | None = None
        """The shares of the latest pass that were drawn and not yet begun; None where the pass is not shared."""

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[list[int]]:
        if not self._training():
            self.drawn = None
            return iter(self._own)
        self.drawn = deque()
        return self._batches(self.drawn, self._balancer.number)

    def _batches(self, drawn: "deque[Share]", number: int) -> Iterator[list[int]]:
        order, ranks = _order(self._own.sampler), self._balancer.ranks
        whole = self._own.batch_size * ranks
        for begin in range(0, len(order), whole):
            batch = order[begin : begin + whole]
            if len(batch) < whole and self._own.drop_last:
                return
            share = self._balancer.share(number, len(batch))
            drawn.append(share)
            number += 1
            part = slice(self._balancer.rank, None, ranks)
            yield batch[part] if share.even else batch[share.begin : share.begin + share.size]


def _order(sampler: "DistributedSampler[Any]") -> list[int]:
    """All samples of an epoch in the order in which the ranks take turns, padded or cut as the sampler does it."""
    whole = copy(sampler)
    whole.num_replicas, whole.rank, whole.num_samples = 1, 0, sampler.total_size
    return list(whole)


class _Pass:
    """The iterator of a shared pass: each batch in hand begins its step."""

    def __init__(self, iterator: Any, batches: SharedBatches, drawn: "deque[Share]", balancer: Balancer) -> None:
        self._iterator, self._batches, self._drawn, self._balancer = iterator, batches, drawn, balancer

    def __iter__(self) -> "_Pass":
        return self

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __next__(self) -> Any:
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._balancer.leave()
            raise
        self._balancer.begin(self._drawn.popleft(), self._batches.ahead)
        return batch


def share_loaders(balancer: Balancer, training: Callable[[], bool]) -> Callable[[], None]:
    """Let the DataLoaders of this process follow the shares of `balancer`. Returns what takes that back."""
    shared: weakref.WeakKeyDictionary[Any, SharedBatches | None] = weakref.WeakKeyDictionary()
    own_sampler: Any = DataLoader._index_sampler
    own_iter: Any = DataLoader.__iter__
    told: set[str] = set()

    def batches_of(loader: Any) -> SharedBatches | None:
        if loader not in shared:
            reason = _reason_against(loader, balancer)
            shared[loader] = None if reason else SharedBatches(loader, balancer, training)
            if reason and reason not in told and training():
                told.add(reason)
                _logger.warning("load balance: a DataLoader keeps even shares: %s", reason)
        return shared[loader]

    def index_sampler(loader: Any) -> Any:
        return batches_of(loader) or own_sampler.fget(loader)

    def iterate(loader: Any) -> Any:
        batches = batches_of(loader)
        iterator = own_iter(loader)
        if batches is None or batches.drawn is None:
            if training():
                balancer.leave()
            return iterator
        return _Pass(iterator, batches, batches.drawn, balancer)

    def restore() -> None:
        DataLoader._index_sampler = own_sampler  # type: ignore[method-assign]
        DataLoader.__iter__ = own_iter  # type: ignore[method-assign]

    DataLoader._index_sampler = property(index_sampler)  # type: ignore[method-assign, assignment]
    DataLoader.__iter__ = iterate  # type: ignore[method-assign]
    return restore


def _reason_against(loader: Any, balancer: Balancer) -> str:
    """Why the batches of `loader` cannot be shared behind the script's back, or nothing."""
    sampler, batches = loader.sampler, loader.batch_sampler
    if not isinstance(sampler, DistributedSampler):
        return f"its sampler is a {type(sampler).__name__}, no DistributedSampler (hetccl.balance.Balance can serve it)"
    if type(sampler).__iter__ is not DistributedSampler.__iter__:
        return f"{type(sampler).__name__} has an order of its own"
    if type(batches) is not BatchSampler:
        return f"its batches are cut by {type(batches).__name__}"
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} iterates in a way of its own"
    if (sampler.num_replicas, sampler.rank) != (balancer.ranks, balancer.rank):
        return f"its sampler is for rank {sampler.rank} of {sampler.num_replicas}, not for the whole world"
    if not getattr(loader, "in_order", True):
        return "its batches come in any order (in_order=False)"
    return ""
