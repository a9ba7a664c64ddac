"""What load balance gains over pools of unequal speed, simulated by CPU quotas.

    python benchmarks/balance.py --json build/balance.json        as root, about 12 minutes

Each pool is one rank whose computing thread has a CPU quota of its own (cgroups), the same alone and mixed; the threads
that carry the wires have none. The ranks live in a network namespace whose link is slow enough (tc) that communication
would take a fifth of a step or more if it ran alone. Pools run alone, then together with balance Off and Auto.
Efficiency is the mixed throughput over the sum of those alone. The quotas add up to 1.5 cores at most: two suffice.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MIXES = {
    "1:1": (0.7, 0.7),
    "1:2": (0.45, 0.9),
    "1:3": (0.3, 0.9),
    "1:2:3": (0.23, 0.46, 0.69),
}
PERIOD_US = 10_000
GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


@contextlib.contextmanager
def quota(cores: float) -> Iterator[Path]:
    """A file that puts a thread whose number is written to it under a quota of so many cores."""
    root = next(
        (group for group in GROUPS if (group / "cpu.cfs_quota_us").exists() or (group / "cgroup.controllers").exists()),
        None,
    )
    if root is None or os.geteuid() != 0:
        sys.exit("CPU quotas need root and cgroups with the cpu controller")
    group = Path(tempfile.mkdtemp(prefix="hetccl-balance-", dir=root))
    try:
        amount = int(cores * PERIOD_US)
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(amount))
            yield group / "tasks"
        else:
            (group / "cgroup.type").write_text("threaded")
            (group / "cpu.max").write_text(f"{amount} {PERIOD_US}")
            yield group / "cgroup.threads"
    finally:
        group.rmdir()


@contextlib.contextmanager
def network(rate: str) -> Iterator[str]:
    """The name of a network namespace whose loopback carries no more than `rate`, in tc's words."""
    name = f"hetccl-balance-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        shape = ["tbf", "rate", rate, "burst", "256k", "latency", "50ms"]
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", *shape], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def run(quotas: tuple[float, ...], mode: str, evens: list[int], args: argparse.Namespace) -> dict[str, float]:
    """One run of the ranks with these quotas: what rank 0 measured."""
    script = Path(__file__).with_name("balance_train.py")
    with contextlib.ExitStack() as stack:
        namespace = stack.enter_context(network(args.rate))
        ranks = []
        for rank, (cores, even) in enumerate(zip(quotas, evens, strict=True)):
            options = {
                "--tasks": stack.enter_context(quota(cores)),
                "--even": even,
                "--width": args.width,
                "--layers": args.layers,
                "--warm-up": args.warm_up,
                "--steps": args.steps,
            }
            environment = os.environ | {
                "HETCCL_VENDOR": "nvidia" if rank == 0 else "amd",
                "HETCCL_POOL": f"pool{rank}",
                "HETCCL_SIMULATE": "1",
                "HETCCL_BALANCE": mode,
                "HETCCL_LOG": "WARNING",
                "NCCL_SHM_DISABLE": "1",
                "NCCL_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(len(quotas)),
            }
            words = [str(word) for word in itertools.chain(*options.items())]
            ranks.append(
                subprocess.Popen(
                    ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, script, *words],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        said = [rank.communicate(timeout=600)[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit("a rank failed")
    result: dict[str, float] = json.loads(said[0].splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument("--mixes", default=",".join(MIXES), help="of %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="medians of so many runs (default: %(default)s)")
    parser.add_argument("--even", type=int, default=1200, help="samples a rank and step when all have as many")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rate", default="2gbit", help="of the ranks' network (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=20, help="steps before the measurement")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    rows = []
    print(f"{'pools':<8}{'mode':<8}{'alone, samples/s':<28}{'mixed':>8}{'efficiency':>12}{'communication':>15}")
    for mix in args.mixes.split(","):
        quotas = MIXES[mix]
        found: dict[str, list[dict[str, float]]] = {"Off": [], "Auto": []}
        alone: list[list[float]] = []
        for _ in range(args.runs):
            alone.append([run((cores,), "Off", [args.even], args)["samples_per_s"] for cores in quotas])
            for mode, results in found.items():
                results.append(run(quotas, mode, [args.even] * len(quotas), args))
        own = [statistics.median(rates) for rates in zip(*alone, strict=True)]
        for mode, results in found.items():
            mixed = statistics.median(result["samples_per_s"] for result in results)
            row = {
                "pools": mix,
                "mode": mode,
                "alone": own,
                "mixed": mixed,
                "efficiency": statistics.median(
                    result["samples_per_s"] / sum(rates) for result, rates in zip(results, alone, strict=True)
                ),
                "communication": statistics.median(result["communication"] for result in results),
                "simulated": True,
            }
            rows.append(row)
            rates = " + ".join(f"{rate:.0f}" for rate in own)
            print(
                f"{mix:<8}{mode:<8}{rates:<28}{mixed:>8.0f}{row['efficiency']:>12.3f}{row['communication']:>15.2f}",
                flush=True,
            )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"meta": {"quotas": MIXES, "runs": args.runs}, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
