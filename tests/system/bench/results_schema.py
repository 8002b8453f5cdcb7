"""Checks documents of scripts/bench --json against bench/results.schema.json: as much of JSON Schema as that uses."""
import json

from conftest import ROOT

SCHEMA = json.loads((ROOT / "bench/results.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "title", "description", "$defs", "$ref", "anyOf", "allOf", "const", "enum", "type", "required", "properties",
         "additionalProperties", "items"}


def is_type(value, name):
    if name in ("number", "integer"):
        return isinstance(value, (int, float) if name == "number" else int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def wrong(value, schema, where="$"):
    """[what is wrong, with its place]"""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        return wrong(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], where)
    if "anyOf" in schema:
        each = [wrong(value, one, where) for one in schema["anyOf"]]
        return [] if any(not found for found in each) else min(each, key=len)
    found = [w for one in schema.get("allOf", []) for w in wrong(value, one, where)]
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r}")
    types = schema.get("type", [])
    if types and not any(is_type(value, t) for t in ([types] if isinstance(types, str) else types)):
        return [*found, f"{where}: {value!r} is no {types}"]
    if isinstance(value, dict):
        found += [f"{where}: no {name}" for name in schema.get("required", []) if name not in value]
        for name, each in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            found += wrong(each, inner, f"{where}.{name}") if inner else []
    if isinstance(value, list) and "items" in schema:
        found += [w for i, each in enumerate(value) for w in wrong(each, schema["items"], f"{where}[{i}]")]
    return found


def check(document):
    assert wrong(document, SCHEMA) == []
