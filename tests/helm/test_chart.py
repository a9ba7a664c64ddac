"""What the chart installs, by its values."""

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.helm.conftest import CHART, Manifest, Render

KUBERNETES = "1.37"
Helm = Callable[..., "subprocess.CompletedProcess[str]"]

EVERYTHING: dict[str, Any] = {
    "replicas": 2,
    "image": {"registry": "mirror.example/hub/", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": ["pull"],
    "hetccl": {"image": {"tag": "1.2", "pullPolicy": "Always"}, "delivery": "InitContainer"},
    "serviceAccount": {"annotations": {"a": "b"}},
    "extraArgs": ["--log-format=json"],
    "extraEnv": [{"name": "A", "value": "b"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"a": "b"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "webhook": {"enabled": True, "failurePolicy": "Fail"},
    "metrics": {"dashboard": {"enabled": True}},
}
VARIANTS = {
    "defaults": {},
    "everything": EVERYTHING,
    "one namespace": {"scope": "Namespaced", "crds": {"install": False}},
}


def find(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """The manifests of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pod_spec(manifests: list[Manifest]) -> dict[str, Any]:
    """The pod of the Deployment."""
    (deployment,) = find(manifests, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def rules(manifests: list[Manifest]) -> list[dict[str, Any]]:
    """Every rule of every role that is bound to the operator."""
    bound = {
        (manifest["roleRef"]["kind"], manifest["roleRef"]["name"])
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for manifest in find(manifests, kind)
    }
    roles = [*find(manifests, "Role"), *find(manifests, "ClusterRole")]
    return [rule for role in roles if (role["kind"], role["metadata"]["name"]) in bound for rule in role["rules"]]


def test_the_chart_passes_helm_lint(helm: Helm) -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_manifests_are_valid_kubernetes_objects(render: Render, values: dict[str, Any]) -> None:
    for manifest in render(**values):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_the_api_server_admits_the_operator_under_restricted_pod_security(
    render: Render, control_plane: Cluster, values: dict[str, Any]
) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "system", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "test-hettrain"}}
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1}
    control_plane.apply(namespace, high)
    control_plane.apply(account, namespace="system")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}, "spec": pod_spec(render(**values))}
    control_plane.kubectl(*("create", "--dry-run=server", "--namespace", "system", "-f", "-"), stdin=json.dumps(pod))


def test_prometheus_and_grafana_find_what_they_need(render: Render) -> None:
    assert not find(render(), "PodMonitor")
    manifests = render(
        metrics={"podMonitor": {"enabled": True, "labels": {"release": "prom"}}, "dashboard": {"enabled": True}}
    )
    (monitor,) = find(manifests, "PodMonitor")
    (deployment,) = find(manifests, "Deployment")
    assert monitor["metadata"]["labels"]["release"] == "prom"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = [port["name"] for container in pod_spec(manifests)["containers"] for port in container["ports"]]
    assert endpoint["port"] in ports
    (dashboard,) = find(manifests, "ConfigMap")
    assert json.loads(dashboard["data"]["hettrain.json"])["panels"]


def test_crds_stay_when_the_release_goes(render: Render) -> None:
    crds = find(render(), "CustomResourceDefinition")
    assert {crd["metadata"]["name"] for crd in crds} == {"hettrainingjobs.hetccl.io", "hetpoolprofiles.hetccl.io"}
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in crds} == {"keep"}


def test_crds_can_be_left_to_somebody_else(render: Render) -> None:
    assert not find(render(crds={"install": False}), "CustomResourceDefinition")


def test_an_install_for_one_namespace_asks_for_nothing_beyond_it(render: Render) -> None:
    manifests = render(scope="Namespaced", crds={"install": False})
    assert {manifest["metadata"].get("namespace") for manifest in manifests} == {"system"}
    assert not [manifest for manifest in manifests if manifest["kind"].startswith("Cluster")]
    assert not [rule for rule in rules(manifests) if "hetpoolprofiles" in rule["resources"]]
    assert "--namespace=system" in pod_spec(manifests)["containers"][0]["args"]


@pytest.mark.parametrize("scope", ["Cluster", "Namespaced"])
def test_the_operator_can_neither_list_secrets_nor_use_wildcards(render: Render, scope: str) -> None:
    granted = rules(render(scope=scope))
    assert [rule for rule in granted if "secrets" in rule["resources"]]
    for rule in granted:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        if "secrets" in rule["resources"]:
            assert not {"list", "watch", "update", "patch"} & set(rule["verbs"])


def test_the_lease_belongs_to_the_release_and_the_operator_can_make_no_other(render: Render) -> None:
    manifests = render()
    (lease,) = find(manifests, "Lease")
    (rule,) = [rule for rule in rules(manifests) if "leases" in rule["resources"]]
    assert rule["resourceNames"] == [lease["metadata"]["name"]]
    assert "create" not in rule["verbs"]
    assert f"--lease-name={lease['metadata']['name']}" in pod_spec(manifests)["containers"][0]["args"]


def test_a_mirror_goes_before_every_image(render: Render) -> None:
    containers = pod_spec(render(**EVERYTHING))["containers"]
    assert [container["name"] for container in containers] == ["operator", "webhook"]
    for container in containers:
        assert container["image"] == f"mirror.example/hub/hettrain/operator@sha256:{'0' * 64}"
        assert "--hetccl-image=mirror.example/hub/hettrain/hetccl:1.2" in container["args"]


def test_the_webhook_is_asked_about_jobs_alone_and_may_change_its_own_objects_only(render: Render) -> None:
    manifests = render(webhook={"enabled": True})
    (configuration,) = find(manifests, "ValidatingWebhookConfiguration")
    (hook,) = configuration["webhooks"]
    (rule,) = hook["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["hetccl.io"], ["hettrainingjobs"])
    assert hook["failurePolicy"] == "Ignore"
    (service,) = find(manifests, "Service")
    assert hook["clientConfig"]["service"]["name"] == service["metadata"]["name"]
    added = [rule for rule in rules(manifests) if rule not in rules(render())]
    assert all(rule.get("resourceNames") for rule in added if {"update", "patch"} & set(rule["verbs"]))
    arguments = pod_spec(manifests)["containers"][1]["args"]
    assert f"--configuration={configuration['metadata']['name']}" in arguments
    assert f"--service={service['metadata']['name']}" in arguments


def test_the_webhook_is_the_clusters_and_not_one_namespaces(helm: Helm) -> None:
    done = helm("template", "test", CHART, "--set", "webhook.enabled=true", "--set", "scope=Namespaced")
    assert done.returncode != 0
    assert "webhook.enabled needs scope: Cluster" in done.stderr


def test_two_releases_share_no_cluster_wide_name(helm: Helm) -> None:
    names = []
    for namespace in ("one", "two"):
        done = helm("template", "same", CHART, "--namespace", namespace, "--set", "crds.install=false")
        manifests = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
        names.append({m["metadata"]["name"] for m in manifests if m["kind"].startswith("Cluster")})
    assert names[0]
    assert not names[0] & names[1]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"scope": "Everywhere"}, "scope"),
        ({"replica": 2}, "replica"),
        ({"image": {"tag": "a:b"}}, "/image/tag"),
        ({"hetccl": {"delivery": "Copy"}}, "/hetccl/delivery"),
        ({"serviceAccount": {"create": False}}, "/serviceAccount/name"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, values: dict[str, Any], named: str) -> None:
    done = helm("template", "test", CHART, "--values", "-", stdin=json.dumps(values))
    assert done.returncode != 0
    assert named in done.stderr


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Value by dotted path, down to what a user sets as a whole."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in ("resources", "labels"):
            found |= leaves(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def test_the_readme_lists_every_value_with_its_default() -> None:
    values = leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert {name: json.loads(default) for name, default in rows} == values
