"""spec.successPolicy: when a job has succeeded."""

from hettrain.plan.ranks import sizes
from hettrain.policies.verdicts import Finish
from hettrain.status.view import View

__all__ = ["success"]


def success(view: View) -> Finish | None:
    """Trainers that ended with 0 count, whether or not their pods are still there to say so."""
    spec = view.job.spec
    policy, there = spec.success_policy, sizes(view.job)
    asked = [pool for pool in spec.pools if not policy.pools or pool.name in policy.pools]
    done = [pool.name for pool in asked if len(view.completed[pool.name]) >= there[pool.name]]
    if not done or (policy.operator == "All" and len(done) < len(asked)):
        return None
    if len(done) == len(spec.pools):
        return Finish("Complete", "AllPodsSucceeded", f"all {len(view.members)} pods succeeded")
    return Finish("Complete", "SuccessPolicy", f"successPolicy is met: all pods succeeded of pool {', '.join(done)}")
