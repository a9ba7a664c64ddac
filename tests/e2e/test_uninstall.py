"""Deleting the release."""

from tests.cluster.processes import poll
from tests.e2e.jobs import RunningJob, quickstart
from tests.e2e.system import NAMESPACE, Identity, System, everything

ALLOWED = {
    ("CustomResourceDefinition", "<none>", "hettrainingjobs.hetccl.io"),
    ("CustomResourceDefinition", "<none>", "hetpoolprofiles.hetccl.io"),
    ("APIService", "<none>", "v1alpha1.hetccl.io"),  # the API server's own, as long as there are the CRDs
}


def test_job_and_release_deleted_leave_nothing_but_the_crds(system: System, namespace: str) -> None:
    users = {each for each in everything(system.cluster) if namespace in each} | {
        ("ConfigMap", namespace, "quickstart")
    }
    job = RunningJob.apply(system, namespace, quickstart(steps=1))
    job.wait("has its children", lambda: len(job.children("pods")) == 2, 60)
    try:
        system.cluster.kubectl("delete", "htj", job.name, "--namespace", namespace)
        system.uninstall()
        left: set[Identity] = set()

        def only_crds() -> bool:
            found = everything(system.cluster) - system.pristine - users
            left.clear()
            left.update(each for each in found if {namespace, NAMESPACE} & set(each) or not is_other_tests(each))
            return left == ALLOWED

        try:
            poll("nothing but the CRDs is left", only_crds, 60, interval=1)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {sorted(left)}") from None
    finally:
        system.install()


def is_other_tests(each: Identity) -> bool:
    """Whether an object lies in, or is, the namespace of another test, which may still be going."""
    kind, namespace, name = each
    return (name if kind == "Namespace" else namespace).startswith("team-")
