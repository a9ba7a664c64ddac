"""Pydantic models to the structural schemas that a CRD wants."""

from typing import Any

from hettrain.api.base import Model, OpenModel, StatusModel

__all__ = ["structural_schema"]

_KEPT = (
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "type",
)
_DEFAULT_MAX_PROPERTIES = 64


def structural_schema(model: type[Model]) -> dict[str, Any]:
    """The schema of a model: references inlined, nothing but what apiextensions.k8s.io/v1 knows, CEL rules attached."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    return _object(schema, definitions, model)


def _object(schema: dict[str, Any], definitions: dict[str, Any], model: type[Model]) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "object"}
    if "description" in schema:
        result["description"] = " ".join(schema["description"].split())
    fields = {field.alias: field for field in model.model_fields.values()}
    result["properties"] = {}
    for name, property_ in schema["properties"].items():
        node = _node(property_, definitions, _model_of(fields[name].annotation))
        if issubclass(model, StatusModel):
            node.pop("default", None)  # what the operator has not written is not there
        elif "properties" in node and fields[name].default_factory is not None:
            node["default"] = fields[name].get_default(call_default_factory=True).dump()
        result["properties"][name] = node
    if schema.get("required"):
        result["required"] = schema["required"]
    if issubclass(model, OpenModel):
        result["x-kubernetes-preserve-unknown-fields"] = True
    if model.rules:
        result["x-kubernetes-validations"] = [{"rule": rule.cel, "message": rule.message} for rule in model.rules]
    return result


def _node(schema: dict[str, Any], definitions: dict[str, Any], model: type[Model] | None) -> dict[str, Any]:
    if "anyOf" in schema:  # T | None: the field is simply not required
        variants = [variant for variant in schema["anyOf"] if variant != {"type": "null"}]
        assert len(variants) == 1, f"not structural: {schema}"
        schema = {**variants[0], **{k: v for k, v in schema.items() if k not in ("anyOf", "default")}}
    if "$ref" in schema:
        assert model is not None
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        result = _object(target, definitions, model)
        if "description" in schema:
            result["description"] = schema["description"]
        return result
    result = {key: schema[key] for key in _KEPT if key in schema}
    result.update({key: value for key, value in schema.items() if key.startswith("x-kubernetes-")})
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if result["type"] == "array":
        result["items"] = _node(schema["items"], definitions, model)
    elif result["type"] == "object":
        values = schema.get("additionalProperties", schema.get("patternProperties"))
        if isinstance(values, dict):
            first = values if "type" in values else next(iter(values.values()))
            result["additionalProperties"] = {"type": first["type"]}
            result["maxProperties"] = schema.get("maxProperties", _DEFAULT_MAX_PROPERTIES)
        else:
            result["x-kubernetes-preserve-unknown-fields"] = True
    elif result["type"] == "integer":
        result["format"] = "int32"
    return result


def _model_of(annotation: Any) -> type[Model] | None:
    """The model inside an annotation such as `list[Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    arguments = getattr(annotation, "__args__", ())
    return next((found for found in map(_model_of, arguments) if found is not None), None)
