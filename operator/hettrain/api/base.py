"""What every part of our kinds shares: strict models, and rules stated once for CEL and for Python."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

__all__ = ["Model", "OpenModel", "Rule", "StatusModel"]


@dataclass(frozen=True)
class Rule:
    """A rule over one object, as the API server checks it and as `hettrain validate` does.

    `check` is None for a rule over a change (CEL's oldSelf): a file has no earlier state to compare with.
    `field` is where, below the object, the reader should look.
    """

    cel: str
    message: str
    check: Callable[[Any], bool] | None = None
    field: str = ""


class Model(BaseModel):
    """camelCase outside, snake_case inside; nothing is coerced and an unknown field is an error."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        for rule in self.rules:
            if rule.check is not None and not rule.check(self):
                # Braces in a message are data: PydanticCustomError would format them.
                raise PydanticCustomError("rule", "{message}", {"message": rule.message, "field": rule.field})
        return self

    def dump(self) -> dict[str, Any]:
        """The object as it is written down: camelCase, without what is not set and without empty lists and maps."""
        return _pruned(self.model_dump(by_alias=True, exclude_none=True))


def _pruned(value: dict[str, Any]) -> dict[str, Any]:
    return {k: _pruned(v) if isinstance(v, dict) else v for k, v in value.items() if v not in ([], {})}


class OpenModel(Model):
    """An object of Kubernetes' own, declared as far as we look into it; the rest is kept as it is."""

    model_config = ConfigDict(extra="allow")


class StatusModel(Model):
    """Written by the operator, maybe by a later version of it: what is unknown here is left alone."""

    model_config = ConfigDict(extra="ignore")
