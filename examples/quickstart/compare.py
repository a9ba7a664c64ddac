"""Compare the loss curve of a distributed run of train.py with that of one process.

    python examples/quickstart/compare.py LOG_DIR

LOG_DIR holds the logs of the run's replicas; rank 0 wrote one "step N loss X" line a step. Exit 1 where the curves
differ by more than rounding.
"""

import re
import subprocess
import sys
from pathlib import Path

TOLERANCE = 1e-5
STEP = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


def curve(log: str) -> dict[int, float]:
    """Loss by step, as train.py prints it; of a step that was run again after a restart, the last."""
    return {int(step): float(loss) for step, loss in STEP.findall(log)}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    logs = sorted(Path(sys.argv[1]).glob("*.log"), key=lambda log: log.stat().st_mtime)
    mixed = curve("\n".join(log.read_text() for log in logs))
    if not mixed:
        sys.exit(f"no 'step N loss X' line in {sys.argv[1]}/*.log: did the run get as far as training?")
    script = Path(__file__).with_name("train.py")
    alone = curve(
        subprocess.run(
            [sys.executable, script, "--steps", str(max(mixed))], check=True, capture_output=True, text=True
        ).stdout
    )
    if missing := sorted(alone.keys() - mixed.keys()):
        sys.exit(f"the run has no loss for {len(missing)} of {len(alone)} steps, the first of them step {missing[0]}")
    difference = max(abs(mixed[step] - alone[step]) for step in alone)
    last = max(alone)
    print(f"{last} steps, final loss {mixed[last]:.6f}; one process on the same data: {alone[last]:.6f}")
    print(f"largest difference between the two loss curves: {difference:.1e} (limit {TOLERANCE:.0e}, rounding)")
    if not difference <= TOLERANCE:
        sys.exit("the curves differ by more than rounding")


if __name__ == "__main__":
    main()
