"""CRDs from the models: `python -m hettrain.api.crd` writes crds/ and the chart's copy of it."""

from pathlib import Path
from typing import Any

import yaml

from hettrain.api import job, profile
from hettrain.api.base import Model
from hettrain.api.schema import structural_schema

__all__ = ["crds", "files"]

ROOT = Path(__file__).parents[3]


def crds() -> list[dict[str, Any]]:
    """Both CRDs, HetTrainingJob first."""
    return [_job_crd(), _profile_crd()]


def files() -> dict[Path, str]:
    """What the generated files hold, by path relative to the repository's root."""
    documents = {crd["spec"]["names"]["plural"]: crd for crd in crds()}
    plain = {Path(f"crds/{job.GROUP}_{plural}.yaml"): _yaml(crd) for plural, crd in documents.items()}
    charts = {
        Path(f"charts/hettrain/templates/crd-{plural}.yaml"): _templated(crd) for plural, crd in documents.items()
    }
    return plain | charts


def _job_crd() -> dict[str, Any]:
    columns = [
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        {"name": "Pools", "type": "string", "jsonPath": ".status.summary.pools"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.summary.ready"},
        {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    scale = {
        "specReplicasPath": ".spec.elastic.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    subresources = {"status": {}, "scale": scale}
    version = {**_version(job.HetTrainingJob), "subresources": subresources, "additionalPrinterColumns": columns}
    return _crd(job.KIND, job.PLURAL, short=["htj"], scope="Namespaced", categories=["all"], version=version)


def _profile_crd() -> dict[str, Any]:
    columns = [
        {"name": "Vendor", "type": "string", "jsonPath": ".spec.vendor"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {**_version(profile.HetPoolProfile), "additionalPrinterColumns": columns}
    return _crd(profile.KIND, profile.PLURAL, short=["hpp"], scope="Cluster", categories=[], version=version)


def _version(model: type[Model]) -> dict[str, Any]:
    schema = structural_schema(model)
    schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    # The API server knows ObjectMeta by itself and allows no description of it here.
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"].get("status", {}).pop("default", None)
    schema["required"] = ["spec"]
    return {"name": job.VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}


def _crd(
    kind: str, plural: str, *, short: list[str], scope: str, categories: list[str], version: dict[str, Any]
) -> dict[str, Any]:
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": short,
        **({"categories": categories} if categories else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{job.GROUP}"},
        "spec": {"group": job.GROUP, "names": names, "scope": scope, "versions": [version]},
    }


def _yaml(document: dict[str, Any]) -> str:
    return "# Made by `make generate` from operator/hettrain/api.\n" + yaml.safe_dump(
        document, sort_keys=False, width=120
    )


def _templated(crd: dict[str, Any]) -> str:
    # Kept when the release goes: with a CRD go all of its objects.
    metadata = {**crd["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    body = _yaml({**crd, "metadata": metadata})
    assert "{{" not in body, "Helm would read this as a template"
    return "{{- if .Values.crds.install }}\n" + body + "{{- end }}\n"


def main() -> None:
    """Write every generated file below the repository's root."""
    for path, text in files().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()
