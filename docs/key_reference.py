"""Generates the reference of a document's keys from its dataclasses."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from orchestrator.adapters.files import bind_dataclass

BEGIN = "<!-- keys: begin (made by docs/generate_reference.py) -->"
END = "<!-- keys: end -->"


def replace_keys(page: str, shape: type, notes: Mapping[str, str] | None = None) -> str:
    """Return a page with the reference of a dataclass between the page's marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference(shape, notes or {})}\n{END}{after}"


def reference(shape: type, notes: Mapping[str, str]) -> str:
    """Return a section for the dataclass and for each nested dataclass.

    Args:
        shape: The dataclass of the document.
        notes: Additional text for a key, by ``Class.key``.
    """
    texts = _descriptions(shape)
    return "\n".join(_section(each, texts, notes) for each in _shapes(shape))


def _section(shape: type, texts: Mapping[str, str], notes: Mapping[str, str]) -> str:
    hints = get_type_hints(shape)
    lines = [f"### {shape.__name__}", "", texts[shape.__name__], ""]
    lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
    for field in _fields(shape):
        name = f"{shape.__name__}.{field.name}"
        said = " ".join(part for part in (texts.get(name, ""), notes.get(name, "")) if part)
        value, default = _value(hints[field.name]), _default(field)
        lines.append(f"| `{field.name}` | {value} | {default} | {_cell(said)} |")
    return "\n".join([*lines, ""])


def _value(hint: object) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_value(each) for each in arguments if each is not type(None))
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"list of ({_value(arguments[0])})"
    if origin is dict:
        return f"mapping to ({_value(arguments[1])})"
    if isinstance(hint, type) and is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return bind_dataclass.expected(hint).removeprefix("a ").removeprefix("an ")


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        made = field.default_factory()
        return "its own defaults" if is_dataclass(made) else "none"
    if field.default is MISSING:
        return "**required**"
    if field.default is None or field.default in ((), ""):
        return "none"
    value = field.default
    listed = ", ".join(value) if isinstance(value, tuple) else bind_dataclass.as_written(value)
    return f"`{listed}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def _fields(shape: type) -> Iterable[Field[Any]]:
    found = fields(shape) if is_dataclass(shape) else ()
    return [one for one in found if not one.metadata.get("derived")]


def _shapes(shape: type) -> list[type]:
    found = [shape]
    for each in found:
        hints = get_type_hints(each)
        below = [part for field in _fields(each) for part in _parts(hints[field.name])]
        found += [part for part in dict.fromkeys(below) if part not in found]
    return found


def _parts(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from _parts(argument)


def _descriptions(shape: type) -> dict[str, str]:
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    schema = adapter.json_schema()
    texts = {}
    for name, section in {shape.__name__: schema, **schema.get("$defs", {})}.items():
        texts[name] = str(section.get("description", ""))
        for key, value in section.get("properties", {}).items():
            texts[f"{name}.{key}"] = str(value.get("description", ""))
    return texts
