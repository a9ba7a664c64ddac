"""spec.cleanPodPolicy: what a job that is over leaves."""

from hettrain.status.pods import Phase, Pod
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
            return [*view.old, *(pod for pod in current if not _over(pod))]


def _over(pod: Pod) -> bool:
    """Whether nothing of a pod runs any more. The kubelet says so of containers before it says so of the pod."""
    if pod.ended or pod.phase not in (Phase.SUCCEEDED, Phase.FAILED):
        return pod.ended
    statuses = pod.raw.get("status", {}).get("containerStatuses", ())
    ended = {each["name"] for each in statuses if "terminated" in each.get("state", {})}
    return all(container["name"] in ended for container in pod.raw["spec"]["containers"])
