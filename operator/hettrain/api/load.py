"""Documents to models, with errors that tell the reader where, what was found and what is allowed."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from hettrain.api.base import Model
from hettrain.api.job import HetTrainingJob
from hettrain.api.profile import HetPoolProfile

__all__ = ["InvalidDocument", "Problem", "load", "load_profile"]

AnyModel = TypeVar("AnyModel", bound=Model)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a document. `found` is the value as YAML shows it, cut at 80 characters."""

    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}: found {self.found}; {self.expected}"


class InvalidDocument(ValueError):
    """A document that is not the kind it says, with every problem found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def load(document: object) -> HetTrainingJob:
    """A HetTrainingJob from a parsed YAML document. Raises InvalidDocument."""
    return _load(HetTrainingJob, document)


def load_profile(document: object) -> HetPoolProfile:
    """A HetPoolProfile from a parsed YAML document. Raises InvalidDocument."""
    return _load(HetPoolProfile, document)


def _load(model: type[AnyModel], document: object) -> AnyModel:
    if not isinstance(document, Mapping):
        raise InvalidDocument([Problem("(document)", _show(document), f"expected a {model.__name__} object")])
    try:
        return model.model_validate(dict(document))
    except ValidationError as error:
        raise InvalidDocument([_problem(model, dict(e), document) for e in error.errors(include_url=False)]) from None


def _problem(model: type[Model], error: dict[str, Any], document: Mapping[str, Any]) -> Problem:
    location = tuple(error["loc"])
    context = error.get("ctx", {})
    kind = error["type"]
    if kind == "rule":
        location += tuple(filter(None, context["field"].split(".")))
        expected = context["message"]
    elif kind == "extra_forbidden":
        allowed = _fields(model, location[:-1])
        close = difflib.get_close_matches(str(location[-1]), allowed, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        expected = f"there is no such field: {hint}Allowed: {', '.join(allowed)}".replace("? A", "? a", 1)
    elif kind == "missing":
        expected = "this field is required"
    else:
        expected = error["msg"].removeprefix("Value error, ")
    return Problem(_path(location), _show(_value(document, location)), expected)


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path or "(document)"


class _Absent:
    pass


def _value(document: object, location: tuple[str | int, ...]) -> object:
    value: Any = document
    for step in location:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _Absent
    return value


def _show(value: object) -> str:
    if value is _Absent:
        return "nothing"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _fields(model: type[Model], location: tuple[str | int, ...]) -> list[str]:
    """The fields that are allowed at a place of a document."""
    current: type[BaseModel] = model
    for step in location:
        if isinstance(step, int):
            continue
        annotation = next(f.annotation for f in current.model_fields.values() if f.alias == step)
        current = _model_in(annotation)
    return [field.alias or name for name, field in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(found for found in map(_model_in_or_none, get_args(annotation)) if found)


def _model_in_or_none(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for found in map(_model_in_or_none, get_args(annotation)) if found), None)
