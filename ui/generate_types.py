"""Write the types of the API's answers for the page, from the API itself.

`ui/src/data/api.ts` has one interface for each model of `src/durio/web/api`. Run by
`make ui`; a test compares the file with the API.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from durio.web.application import build_api

OUT = Path(__file__).resolve().parent / "src/data/api.ts"
HEAD = """/** The API's answers and bodies. Made by ui/generate_types.py; do not edit. */

"""
PLAIN = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
# Of FastAPI itself; our problems have a type of their own, written by hand.
LEFT_OUT = {"HTTPValidationError", "ValidationError"}
WIDTH = 100

Schema = dict[str, Any]


def main() -> int:
    """Write the file if it changed."""
    text = types()
    if not OUT.is_file() or OUT.read_text(encoding="utf-8") != text:
        OUT.write_text(text, encoding="utf-8")
        print(f"wrote {OUT.name}")
    return 0


def types() -> str:
    """Return the TypeScript of all models, in the order of their names."""
    schemas: dict[str, Schema] = build_api().openapi()["components"]["schemas"]
    parts = [
        declaration(type_name(name), schema)
        for name, schema in sorted(schemas.items())
        if name not in LEFT_OUT
    ]
    return HEAD + "\n".join(parts)


def declaration(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"export type {name} = {type_of(schema)};\n"
    required = set(schema.get("required", ()))
    # A field with a default is optional in a body; an answer always has it.
    is_body = schema.get("additionalProperties") is False
    lines = [
        f"  {key}{'?' if is_body and key not in required else ''}: {type_of(field)};\n"
        for key, field in schema["properties"].items()
    ]
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


def type_of(schema: Schema) -> str:
    """Return the TypeScript type of a JSON schema."""
    if "$ref" in schema:
        return type_name(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return union(type_of(each) for each in schema[key])
    if "allOf" in schema:
        return " & ".join(type_of(each) for each in schema["allOf"])
    return type_of_kind(schema)


def type_of_kind(schema: Schema) -> str:
    kind = schema.get("type")
    if kind == "array":
        items = type_of(schema["items"]) if "items" in schema else "unknown"
        return f"({items})[]" if " | " in items else f"{items}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        inner = type_of(values) if isinstance(values, dict) else "unknown"
        return f"Record<string, {inner}>"
    return PLAIN.get(str(kind), "unknown")


def union(types_of_members: Any) -> str:
    return " | ".join(dict.fromkeys(types_of_members))


def type_name(name: str) -> str:
    """Return a name that TypeScript takes: `Items_JobItem_` -> `ItemsOfJobItem`."""
    found = re.fullmatch(r"(\w+?)_(\w+)_", name)
    return f"{found[1]}Of{found[2]}" if found else name


if __name__ == "__main__":
    sys.exit(main())
