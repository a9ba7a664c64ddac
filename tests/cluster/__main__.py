"""A real Kubernetes by hand: python -m tests.cluster [--nodes N] [--simulated-nodes N]; Ctrl-C ends it.

python -m tests.cluster --simulated-nodes 8      control plane and 8 simulated nodes, no root
python -m tests.cluster --nodes 2                two real nodes, DNS and Services, as root
"""

import argparse
import signal
import sys

from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import running_cluster


def main() -> None:
    """Start a cluster, print how to reach it, and keep it until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=0, help="real nodes (default: 0)")
    parser.add_argument("--simulated-nodes", type=int, default=0, help="nodes played by kwok (default: 0)")
    parser.add_argument("--feature-gates", default="", help="as kube-apiserver takes it")
    parser.add_argument("--runtime-config", default="", help="as kube-apiserver takes it")
    args = parser.parse_args()
    signals = {signal.SIGINT, signal.SIGTERM}
    try:
        with running_cluster(
            args.nodes, feature_gates=args.feature_gates, runtime_config=args.runtime_config
        ) as cluster:
            if args.simulated_nodes:
                cluster.add_simulated_nodes(args.simulated_nodes)
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.binaries}:$PATH", flush=True)
            signal.sigwait(signals)
    except Unavailable as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main()
