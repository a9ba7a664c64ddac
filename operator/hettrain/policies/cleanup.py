"""spec.cleanPodPolicy: what a job that is over leaves."""

from hettrain.status.pods import Pod
from hettrain.status.view import View

__all__ = ["useless"]


def useless(view: View) -> list[Pod]:
    """The pods that a job has no use for once it is over. Those of earlier attempts never stay."""
    current = list(view.current.values())
    match view.job.spec.clean_pod_policy:
        case "All":
            return [*view.old, *current]
        case "None":
            return view.old
        case "Running":
            return [*view.old, *(pod for pod in current if not pod.ended)]
