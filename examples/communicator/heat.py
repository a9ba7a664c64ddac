"""Heat in a rod, shared by all ranks: hetccl's own collectives, without torch.distributed.

    torchrun --nproc-per-node 4 examples/communicator/heat.py

Each rank has a piece of the rod and asks its neighbours for the temperature at its ends in each step. Works with the
arrays of any library; here they are Python's own.
"""

import argparse
from array import array

import hetccl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=240, help="of the whole rod (default: 240)")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    with hetccl.connect(timeout=60) as world:
        counts = [options.points // world.size + (rank < options.points % world.size) for rank in range(world.size)]
        rod = array("d", [100.0] + [0.0] * (options.points - 1)) if world.rank == 0 else None
        own = array("d", bytes(8 * counts[world.rank]))
        world.scatter(own, rod, 0, counts)

        for _ in range(options.steps):
            own, change = step(world, own)
        world.all_reduce(change, hetccl.Op.MAX)

        whole = array("d", bytes(8 * options.points)) if world.rank == 0 else None
        world.gather(whole, own, 0, counts)
        if whole is not None:
            print(f"{world.size} ranks over {world.wires}: heat {sum(whole):.6f}, last change {change[0]:.6f}")
        world.barrier()


def step(world: hetccl.Communicator, own: "array[float]") -> "tuple[array[float], array[float]]":
    """A step in time: the new temperatures of this rank's piece, and the largest change among them."""
    left, right = array("d", own[:1]), array("d", own[-1:])  # a rod that ends here keeps its heat
    with world.starting() as messages:
        if world.rank > 0:
            world.send(array("d", own[:1]), world.rank - 1)
            world.recv(left, world.rank - 1)
        if world.rank < world.size - 1:
            world.send(array("d", own[-1:]), world.rank + 1)
            world.recv(right, world.rank + 1)
    for message in messages:
        message.wait()
    around = left + own + right
    new = array(
        "d",
        (a + 0.25 * (before - 2 * a + after) for before, a, after in zip(around[:-2], own, around[2:], strict=True)),
    )
    return new, array("d", [max(abs(a - b) for a, b in zip(own, new, strict=True))])


if __name__ == "__main__":
    main()
