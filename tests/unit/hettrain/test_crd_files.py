"""CRDs and reference are made from the models, and nothing that is made is edited by hand."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hettrain.api import HetTrainingJob, JobStatus, crd, reference
from hettrain.api.crd import crds
from hettrain.events import Reason
from hettrain.status.conditions import ORDER, STATES

FILES = crd.files() | reference.files()


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_generated_file_is_in_step(path: Path) -> None:
    assert (crd.ROOT / path).read_text() == FILES[path], "run `make generate`"


def test_the_guide_names_every_event_condition_and_state() -> None:
    guide = (crd.ROOT / "docs/operator.md").read_text()
    words = [*(reason.value for reason in Reason), *ORDER, *STATES]
    assert not [word for word in words if not re.search(rf"\b{word}\b", guide)]


def nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += nodes(child, f"{path}.{name}")
    if "items" in schema:
        found += nodes(schema["items"], f"{path}[]")
    return found


def schemas() -> list[tuple[str, dict[str, Any]]]:
    return [node for each in crds() for node in nodes(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"])]


def test_every_list_has_a_limit() -> None:
    assert not [path for path, node in schemas() if node.get("type") == "array" and "maxItems" not in node]


def test_every_field_of_the_spec_is_described() -> None:
    spec = crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    unsaid = [path for path, node in nodes(spec) if "description" not in node and not path.endswith("[]")]
    kubernetes = {"name", "value", "labels", "annotations"}
    assert not [path for path in unsaid if path.rsplit(".", 1)[-1] not in kubernetes]


def test_the_crd_is_small_enough_for_a_client_side_apply() -> None:
    assert all(len(yaml.safe_dump(each)) < 250_000 for each in crds())


def test_a_default_in_the_crd_is_the_default_in_the_model() -> None:
    defaults = {path: node["default"] for path, node in schemas() if "default" in node}
    assert defaults[".spec.rendezvous.port"] == 29500
    assert defaults[".spec.failurePolicy"]["backoff"] == {"initialSeconds": 1, "maxSeconds": 300}
    assert not [path for path in defaults if path.startswith(".status")]


def test_columns_show_fields_that_exist() -> None:
    paths = {path for path, _ in nodes(crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"])}
    columns = {column["jsonPath"] for column in crds()[0]["spec"]["versions"][0]["additionalPrinterColumns"]}
    assert columns - {".metadata.creationTimestamp"} <= paths
    assert HetTrainingJob.model_fields["status"].annotation is JobStatus
