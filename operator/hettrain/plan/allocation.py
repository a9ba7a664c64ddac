"""How many pods each pool of an elastic job gets: pure arithmetic."""

from collections.abc import Mapping

from hettrain.api.job import JobSpec
from hettrain.api.pool import Pool

__all__ = ["allocate", "bounds"]


def bounds(pool: Pool) -> tuple[int, int]:
    """The fewest and the most pods of a pool."""
    return pool.min_replicas or pool.replicas, pool.max_replicas or pool.replicas


def allocate(spec: JobSpec, caps: Mapping[str, int]) -> dict[str, int]:
    """The pods of each pool, elastic.replicas together, or what the pools' replicas add up to.

    Each pool gets its least. Further pods go one by one to the pool that is shortest of its `replicas`, by ratio, the
    first of several. `caps` are the most that pools can get for now; no pool has fewer than its least for it.
    """
    asked = spec.elastic.replicas if spec.elastic is not None else None
    left = asked or sum(pool.replicas for pool in spec.pools)
    result = {pool.name: bounds(pool)[0] for pool in spec.pools}
    left -= sum(result.values())
    for _ in range(left):
        open_pools = [p for p in spec.pools if result[p.name] < min(bounds(p)[1], caps.get(p.name, bounds(p)[1]))]
        if not open_pools:
            break
        result[min(open_pools, key=lambda pool: result[pool.name] / pool.replicas).name] += 1
    return result
