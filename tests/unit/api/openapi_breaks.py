"""What of a newer OpenAPI document breaks the clients that were made for an older one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
_WORDS = frozenset(
    {"description", "title", "default", "examples", "enum", "deprecated", "readOnly"}
)
"""Keys of a schema that change nothing of the values' shape; `enum` is compared on its own."""


def references(part: object) -> Iterator[str]:
    """Yield the addresses of all schemas that a part refers to."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def breaks(old: Json, new: Json) -> Iterator[str]:
    """Yield each change that breaks a client: what is gone, what has become required."""
    for path, methods in old["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            later = new["paths"].get(path, {}).get(method)
            if later is None:
                yield f"{name} is gone"
                continue
            yield from _of_parameters(name, operation, later)
            yield from (
                f"{name} no longer answers {status}"
                for status in operation["responses"].keys() - later["responses"].keys()
            )
    for part, is_answer in (("responses", True), ("requestBody", False)):
        shapes = new["components"]["schemas"]
        for name, schema in sorted(_reached(old, part).items()):
            if name in shapes:
                yield from _of_schema(name, schema, shapes[name], is_answer=is_answer)
            else:
                yield f"the schema {name} is gone"


def _of_parameters(name: str, old: Json, new: Json) -> Iterator[str]:
    before, after = (
        {(one["in"], one["name"]): one for one in operation.get("parameters", [])}
        for operation in (old, new)
    )
    yield from (f"{name} takes no {key[1]}" for key in before.keys() - after.keys())
    for key, one in after.items():
        if one.get("required") and not before.get(key, {}).get("required"):
            yield f"{name} needs {key[1]}"
    if new.get("requestBody", {}).get("required") and not old.get("requestBody", {}).get(
        "required"
    ):
        yield f"{name} needs a body"


def _reached(document: Json, part: str) -> Json:
    """Return the schemas that this part of the operations refers to, by name."""
    schemas, found = document["components"]["schemas"], dict[str, Any]()
    ahead = [
        ref
        for methods in document["paths"].values()
        for operation in methods.values()
        for ref in references(operation.get(part, {}))
    ]
    while ahead:
        name = ahead.pop().rpartition("/")[2]
        if name not in found:
            found[name] = schemas[name]
            ahead += references(schemas[name])
    return found


def _of_schema(name: str, old: Json, new: Json, *, is_answer: bool) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    yield from (f"{name}.{field} is gone" for field in sorted(before.keys() - after.keys()))
    required = set(new.get("required", ())) - set(old.get("required", ()))
    lost = set(old.get("required", ())) - set(new.get("required", ()))
    if not is_answer:
        yield from (f"{name}.{field} is needed" for field in sorted(required))
        for place, then, now in (
            (name, old, new),
            *((f"{name}.{field}", before[field], after.get(field, {})) for field in before),
        ):
            yield from (f"{place} is never {one!r}" for one in _values(then) - _values(now))
    else:
        yield from (f"{name}.{field} may be absent" for field in sorted(lost & after.keys()))
    for field in sorted(before.keys() & after.keys()):
        then, now = _shapes(before[field]), _shapes(after[field])
        if (now - then) if is_answer else (then - now):
            yield f"{name}.{field} has another type"


def _values(schema: Json) -> set[str]:
    return {str(one) for one in schema.get("enum", ())}


def _shapes(schema: Json) -> set[str]:
    """Return the alternatives of a value's shape, without words for people."""
    return {
        json.dumps({k: v for k, v in one.items() if k not in _WORDS}, sort_keys=True)
        for one in schema.get("anyOf", [schema])
    }
