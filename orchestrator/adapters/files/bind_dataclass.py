"""Binds a document to the domain's dataclasses; every mismatch is a problem with its path."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from orchestrator.adapters.files.document_nodes import ConfigNode, DocumentPosition, placed
from orchestrator.domain.document_problems import SCALARS, SUCH_AS, Path, Problem, nearest

_QUOTED = 60
"""Maximum characters of a text that is quoted in a message."""


def expected(hint: object) -> str:
    """Return the name of a type for messages."""
    origin = get_origin(hint)
    if origin is Literal:
        return either(get_args(hint))
    if origin is tuple:
        return "a list"
    if origin in (Union, types.UnionType):
        return " or ".join(expected(o) for o in get_args(hint) if o is not type(None))
    return SCALARS.get(hint, "a mapping")


def either(choices: tuple[object, ...]) -> str:
    """Return the allowed words for messages."""
    return " or ".join(repr(choice) for choice in choices)


def describe(item: ConfigNode) -> str:
    """Return a description of the value that was found, for messages."""
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
    if isinstance(value, str) and len(value) > _QUOTED:
        return f"a text that begins with {value[:_QUOTED]!r}"
    return repr(value) if isinstance(value, str) else f"{value}"


def list_advice(item: ConfigNode) -> str:
    """Return advice if a single word was given instead of a list."""
    return f"; for a list of one write [{item.value}]" if isinstance(item.value, str) else ""


def quote_advice(item: ConfigNode) -> str:
    """Return advice if a number was given instead of text: unquoted ``1.10`` is read as 1.1."""
    plain = as_written(item.value)
    what = plain if isinstance(item.value, bool) else f"the number {plain}"
    return f'write it in quotes: "{item.written or plain}" - unquoted it is {what}'


def unquote_advice(item: ConfigNode, kind: object) -> str:
    """Return advice if quoted text would be valid without its quotes; else an empty text."""
    if not isinstance(item.value, str) or kind is Decimal:
        return ""
    text = item.value.strip()
    if kind is bool:
        return f"write {text} without quotes" if text in ("true", "false") else ""
    digits = text.replace(".", "", 1) if kind is float else text
    return f"write {text} without quotes" if digits.isdecimal() else ""


def as_written(value: object) -> str:
    """Return a scalar in the notation of YAML and TOML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


LARGEST_NUMBER = 10**12
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

BAD = object()
"""Marks a value that cannot be bound; its problem is already collected."""


class DataclassBinder:
    """Binds nodes to types; collects all problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, item: ConfigNode, hint: object, path: Path = ()) -> object:
        """Return the item's value as the type `hint`; collect its problems.

        An item with problems still gives a value, so that its other parts can be checked: a number
        instead of text is returned as it was written, a wrong value is replaced by its default, and
        a required text that is missing or wrong is empty. If no value is usable, return `BAD`.
        """
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            return self._union(item, get_args(hint), path)
        if origin is Literal:
            return self._literal(item, get_args(hint), path)
        if origin is tuple:
            return self._list(item, get_args(hint)[0], path)
        if origin is dict:
            return self._table(item, get_args(hint), path)
        if isinstance(hint, type) and is_dataclass(hint):
            return self._record(item, hint, path)
        return self._scalar(item, hint, path)

    def say(self, path: Path, message: str, at: DocumentPosition | None) -> object:
        """Add a problem of the value at `path`; return `BAD`."""
        self.problems.append(placed(path, message, at))
        return BAD

    def _wrong(self, item: ConfigNode, wanted: str, path: Path, advice: str = "") -> object:
        return self.say(path, f"must be {wanted}, not {describe(item)}{advice}", item.at)

    def _union(self, item: ConfigNode, options: tuple[object, ...], path: Path) -> object:
        if item.value is None and type(None) in options:
            return None
        present = tuple(o for o in options if o is not type(None))
        fitting = [option for option in present if _fits(item, option)]
        if len(fitting) == 1 and not _is_other_word(item, fitting[0], among=present):
            return self.read(item, fitting[0], path)
        words = " or ".join(expected(option) for option in present)
        takes_list = any(get_origin(option) is tuple for option in present)
        return self._wrong(item, words, path, list_advice(item) if takes_list else "")

    def _literal(self, item: ConfigNode, choices: tuple[object, ...], path: Path) -> object:
        for choice in choices:
            if item.value == choice and type(item.value) is type(choice):
                return choice
        if isinstance(item.value, str) and len(choices) > 1:
            hint = nearest(item.value, map(str, choices))
            return self.say(path, f"{item.value!r} is unknown{hint}", item.at)
        return self._wrong(item, either(choices), path)

    def _list(self, item: ConfigNode, each: object, path: Path) -> object:
        if item.elements is None:
            return self._wrong(item, "a list", path, list_advice(item))
        read = tuple(self.read(e, each, (*path, n)) for n, e in enumerate(item.elements))
        return BAD if any(one is BAD for one in read) else read

    def _table(self, item: ConfigNode, types_: tuple[object, ...], path: Path) -> object:
        if item.entries is None:
            return self._wrong(item, "a mapping", path)
        keys = get_args(types_[0]) if get_origin(types_[0]) is Literal else None
        read = {}
        for key, entry in item.entries.items():
            if keys is not None and key not in keys:
                self.say((*path, key), f"there is no such key{nearest(key, keys)}", entry.at)
            self._storable(key, (*path, key), entry.at)
            read[key] = self.read(entry.item, types_[1], (*path, key))
        return {key: value for key, value in read.items() if value is not BAD}

    def _record(self, item: ConfigNode, form: type, path: Path) -> object:
        if item.entries is None:
            return self._wrong(item, "a mapping", path)
        known = _fields(form)
        for key, entry in item.entries.items():
            if key not in known:
                self.say((*path, key), f"there is no such key{nearest(key, known)}", entry.at)
        given = {
            key: self._field(entry.item, known[key], (*path, key))
            for key, entry in item.entries.items()
            if key in known
        }
        usable = {key: value for key, value in given.items() if value is not BAD}
        for key, (field, hint) in known.items():
            if not _is_required(field):
                continue
            if key not in given:
                self.say((*path, key), "is missing", item.at)
            if key not in usable and hint is str:
                usable[key] = ""
        is_whole = all(key in usable or not _is_required(known[key][0]) for key in known)
        return form(**usable) if is_whole else BAD

    def _field(self, item: ConfigNode, known: tuple[Field[Any], object], path: Path) -> object:
        """Return a field's value; if it is wrong, the message shows the field's own example."""
        field, hint = known
        before = len(self.problems)
        read = self.read(item, hint, path)
        if len(self.problems) > before and SUCH_AS in field.metadata:
            del self.problems[before:]
            self._wrong(item, f"a value such as {field.metadata[SUCH_AS]}", path)
        return read

    def _scalar(self, item: ConfigNode, kind: object, path: Path) -> object:
        value = item.value
        if kind is str or (kind is object and isinstance(value, str)):
            return self._text(item, path)
        if isinstance(value, int | float) and abs(value) > LARGEST_NUMBER:
            return self.say(path, f"is too large: at most {LARGEST_NUMBER}", item.at)
        read = _number(value, kind)
        if read is not BAD:
            return read
        advice = unquote_advice(item, kind)
        if advice:
            return self.say(path, f"must be {SCALARS[kind]}: {advice}", item.at)
        return self._wrong(item, expected(kind), path)

    def _text(self, item: ConfigNode, path: Path) -> object:
        if isinstance(item.value, str):
            return self._storable(item.value, path, item.at)
        if isinstance(item.value, bool | int | float):
            self.say(path, quote_advice(item), item.at)
            return item.written or as_written(item.value)
        return self._wrong(item, "text", path)

    def _storable(self, value: str, path: Path, at: DocumentPosition | None) -> object:
        if "\x00" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            return self.say(path, "holds a character that cannot be stored", at)
        return value


@cache
def _fields(form: type) -> Mapping[str, tuple[Field[Any], object]]:
    hints = get_type_hints(form)
    return {field.name: (field, hints[field.name]) for field in fields(cast(Any, form))}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _fits(item: ConfigNode, option: object) -> bool:
    origin = get_origin(option)
    if item.entries is not None:
        return origin is dict or is_dataclass(option)
    if item.elements is not None:
        return origin is tuple
    return origin is Literal or option in SCALARS


def _is_other_word(item: ConfigNode, option: object, *, among: tuple[object, ...]) -> bool:
    """Return whether the item is an invalid word where a list or a mapping is valid as well."""
    choices = get_args(option) if get_origin(option) is Literal else (item.value,)
    return len(among) > 1 and item.value not in choices


def _number(value: object, kind: object) -> object:
    if kind is bool or isinstance(value, bool):
        return value if kind in (bool, object) and isinstance(value, bool) else BAD
    if kind is object:
        return value if isinstance(value, int | float) and math.isfinite(value) else BAD
    if kind is int:
        return value if isinstance(value, int) else BAD
    if kind is Decimal:
        return _amount(value)
    if kind is date:
        return _day(value)
    if isinstance(value, int | float) and not math.isnan(value):
        return float(value)
    return BAD


def _day(value: object) -> object:
    if not isinstance(value, str) or not _DAY.fullmatch(value.strip()):
        return BAD
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        return BAD


def _amount(value: object) -> object:
    if not isinstance(value, str | int | float):
        return BAD
    try:
        amount = Decimal(str(value).strip())
    except InvalidOperation:
        return BAD
    return amount if amount.is_finite() and abs(amount) <= LARGEST_NUMBER else BAD
