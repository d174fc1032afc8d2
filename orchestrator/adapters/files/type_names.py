"""What types and values are called in a message to the person who wrote the document."""

from __future__ import annotations

import types
from datetime import date
from decimal import Decimal
from typing import Literal, Union, get_args, get_origin

from orchestrator.adapters.files.config_nodes import ConfigNode

SCALARS: dict[object, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Decimal: 'an amount such as "4.00"',
    date: "a day such as 2026-03-01",
    object: "text, a number, true or false",
}


def expected(hint: object) -> str:
    """What a type is called."""
    origin = get_origin(hint)
    if origin is Literal:
        return either(get_args(hint))
    if origin is tuple:
        return "a list"
    if origin in (Union, types.UnionType):
        return " or ".join(expected(o) for o in get_args(hint) if o is not type(None))
    return SCALARS.get(hint, "a mapping")


def either(choices: tuple[object, ...]) -> str:
    """The possible words."""
    return " or ".join(repr(choice) for choice in choices)


def found(item: ConfigNode) -> str:
    """What stands there."""
    if item.entries is not None:
        return "a mapping"
    if item.elements is not None:
        return "a list"
    value = item.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return as_written(value)
    if isinstance(value, int | float):
        return f"the number {value}"
    return repr(value) if isinstance(value, str) else f"{value}"


def list_advice(item: ConfigNode) -> str:
    """For a word where a list belongs."""
    return f"; for a list of one write [{item.value}]" if isinstance(item.value, str) else ""


def quote_advice(item: ConfigNode) -> str:
    """For a number where text belongs: `1.10` is 1.1."""
    plain = as_written(item.value)
    what = plain if isinstance(item.value, bool) else f"the number {plain}"
    return f'write it in quotes: "{item.written or plain}" - unquoted it is {what}'


def unquote_advice(item: ConfigNode, kind: object) -> str:
    """For text that would be right without its quotes; else empty."""
    if not isinstance(item.value, str) or kind is Decimal:
        return ""
    text = item.value.strip()
    if kind is bool:
        return f"write {text} without quotes" if text in ("true", "false") else ""
    digits = text.replace(".", "", 1) if kind is float else text
    return f"write {text} without quotes" if digits.isdecimal() else ""


def as_written(value: object) -> str:
    """A scalar as YAML and TOML write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
