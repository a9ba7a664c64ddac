"""What a user may write, and what he is told where it is wrong."""

from typing import Any, get_args

import pytest
from hettrain.api import HetTrainingJob, InvalidDocument, load, load_profile
from hettrain.api.base import Model

from tests.unit.hettrain.broken import BROKEN
from tests.unit.hettrain.documents import document, pool


def problems(bad: object) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidDocument) as raised:
        load(bad)
    return [(problem.path, problem.found, problem.expected) for problem in raised.value.problems]


def test_every_problem_is_named_with_its_path_what_was_found_and_what_is_allowed() -> None:
    bad = document(pool(replicas="2"), pool("amd", vendor="intel"), suspend="no")
    assert problems(bad) == [
        ("spec.pools[0].replicas", "'2'", "Input should be a valid integer"),
        ("spec.pools[1].vendor", "'intel'", "no such vendor; there are nvidia, amd, cpu"),
        ("spec.suspend", "'no'", "Input should be a valid boolean"),
    ]


def test_an_unknown_field_is_an_error_with_a_suggestion() -> None:
    [(path, found, expected)] = problems(document(pool(replcas=3)))
    assert (path, found) == ("spec.pools[0].replcas", "3")
    assert "did you mean replicas?" in expected
    assert "gpusPerReplica" in expected


def test_a_missing_field_is_named() -> None:
    bad = document()
    del bad["spec"]["pools"][1]["vendor"]
    assert problems(bad) == [("spec.pools[1].vendor", "nothing", "this field is required")]


@pytest.mark.parametrize("bad", [None, [], "text", {}])
def test_what_is_no_job_at_all_is_said_to_be_none(bad: object) -> None:
    assert problems(bad)


@pytest.mark.parametrize(("bad", "path", "words"), BROKEN, ids=[broken[1] for broken in BROKEN])
def test_a_broken_rule_names_the_field_and_the_remedy(bad: dict[str, Any], path: str, words: str) -> None:
    [(where, _, expected)] = problems(bad)
    assert where == path
    assert words in expected


def models(root: type[Model]) -> set[type[Model]]:
    """A model and all that its fields hold."""
    found = {root}
    for field in root.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Model):
                found |= models(part)
    return found


def test_every_rule_has_a_document_that_breaks_it() -> None:
    messages = [rule.message for model in models(HetTrainingJob) for rule in model.rules if rule.check is not None]
    assert not [message for message in messages if not any(words in message for _, _, words in BROKEN)]


def test_a_gpu_pool_may_leave_its_devices_to_the_template() -> None:
    load(document(pool(gpusPerReplica=None, nprocPerNode=2)))


def test_names_may_fill_the_budget() -> None:
    load(document(pool("p" * 30), name="j" * 21))


def test_a_template_keeps_what_only_kubernetes_knows() -> None:
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "priorityClassName": "high",
            "containers": [{"name": "t", "image": "i", "env": [{"name": "A", "valueFrom": {}}]}],
        },
    }
    loaded = load(document(pool(template=template)))
    assert loaded.spec.pools[0].template.model_dump(by_alias=True, exclude_none=True) == {
        "metadata": {"labels": {"team": "a"}, "annotations": {}},
        "spec": template["spec"],
    }


def test_a_profile_takes_only_nccl_variables_as_such() -> None:
    profile = {
        "apiVersion": "hetccl.io/v1alpha1",
        "kind": "HetPoolProfile",
        "metadata": {"name": "h100"},
        "spec": {"vendor": "nvidia", "nccl": {"LD_PRELOAD": "x"}},
    }
    with pytest.raises(InvalidDocument):
        load_profile(profile)
    profile["spec"] = {"vendor": "nvidia", "nccl": {"NCCL_IB_TC": "106"}}
    assert load_profile(profile).spec.nccl == {"NCCL_IB_TC": "106"}
