"""Reference pages from the models: `python -m hettrain.api.reference` writes docs/reference/."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hettrain.api.crd import ROOT, crds

__all__ = ["files"]

Schema = dict[str, Any]


def files() -> dict[Path, str]:
    """What the reference pages hold, by path relative to the repository's root."""
    return {Path(f"docs/reference/{crd['spec']['names']['singular']}.md"): _page(crd) for crd in crds()}


def _page(crd: dict[str, Any]) -> str:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    scope = crd["spec"]["scope"].lower()
    head = (
        f"# {names['kind']}\n\n<!-- Made by `make generate` from operator/hettrain/api. -->\n\n"
        f"`{crd['spec']['group']}/{version['name']}`, short name `{names['shortNames'][0]}`, {scope}. "
        f"{schema['description']}\n"
    )
    parts = [name for name in ("spec", "status") if name in schema["properties"]]
    tables = (_table(part, schema["properties"][part]) for part in parts)
    rules = "".join(f"- `{path}`: {message}.\n" for path, message in _rules(schema, ""))
    return "\n".join([head, *tables, f"## Rules\n\n{rules}"]) if rules else "\n".join([head, *tables])


def _table(name: str, schema: Schema) -> str:
    rows = "".join(
        f"| `{path}` | {_type(field)} | {_default(field, required)} | {field.get('description', '')} |\n"
        for path, field, required in _fields(schema, "")
    )
    return f"## {name}\n\n| field | type | default | |\n|---|---|---|---|\n{rows}"


def _fields(schema: Schema, prefix: str) -> Iterator[tuple[str, Schema, bool]]:
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, field, name in schema.get("required", ())
        if field.get("type") == "array":
            yield from _fields(field["items"], f"{path}[].")
        else:
            yield from _fields(field, f"{path}.")


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {field['items']['type']}"
    if "additionalProperties" in field:
        return f"map of {field['additionalProperties']['type']}"
    low, high = field.get("minimum"), field.get("maximum")
    return f"{field['type']}, {low} to {high}" if low is not None and high is not None else str(field["type"])


def _default(field: Schema, required: bool) -> str:
    if required:
        return "required"
    default = field.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path or "(the object)", rule["message"]
    for name, field in schema.get("properties", {}).items():
        deeper = f"{path}.{name}" if path else name
        yield from _rules(field, deeper)
        if "items" in field:
            yield from _rules(field["items"], f"{deeper}[]")


def main() -> None:
    """Write the pages below the repository's root."""
    for path, text in files().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()
