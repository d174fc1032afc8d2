"""The base class of settings: validated, immutable, convertible to dictionaries."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A frozen group of settings; strings are converted to enum members, integers to floats.

    Raises:
        ValueError: a value has the wrong type or is out of range; the message names the setting.
    """

    def __post_init__(self) -> None:
        for name, wanted in _types(type(self)).items():
            value = getattr(self, name)
            object.__setattr__(self, name, _as(wanted, value, f"{type(self).__name__}.{name}"))
        self.check()

    def check(self) -> None:
        """Raise ValueError for invalid combinations; groups with rules override it."""

    def require(self, condition: bool, rule: str, value: object) -> None:
        """Raise ValueError unless `condition`; `rule` starts with the setting's name."""
        if not condition:
            shown = value.value if isinstance(value, Enum) else value
            raise ValueError(f"{type(self).__name__}: {rule}, got {shown!r}")

    def update(self, **changes: Any) -> Self:
        """Return a copy with changed values; a group may be given as a dictionary of its changes.

        Raises:
            ValueError: a setting is unknown (the nearest is named), or a value is invalid.
        """
        _refuse_unknown(type(self), changes)
        for name, change in changes.items():
            group = getattr(self, name)
            if isinstance(group, Settings) and isinstance(change, Mapping):
                changes[name] = group.update(**change)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return nested dictionaries of JSON's types."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from the result of `to_dict`; missing settings get their defaults.

        Raises:
            ValueError: as `update`.
        """
        return cls().update(**values)


def _refuse_unknown(cls: type[Settings], names: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(cls)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise ValueError(f"{cls.__name__} has no setting {name!r}; nearest: {near[0]!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.to_dict()
    return value.value if isinstance(value, Enum) else value


@cache
def _types(cls: type[Settings]) -> dict[str, Any]:
    """Return the type of each setting, evaluated once per class."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _as(wanted: Any, value: Any, where: str) -> Any:
    """Return `value` converted to the wanted type: a class, or `class | None`."""
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if value is None and types.NoneType in options:
        return None
    kind = options[0]
    if issubclass(kind, Enum):
        return _member(kind, value, where)
    if kind is float and type(value) is int:
        return float(value)
    # bool is a subclass of int, but True is not a valid number
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{where} must be {kind.__name__}, got {value!r}")
    return value


def _member(kind: type[Enum], value: Any, where: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(member.value for member in kind)
        raise ValueError(f"{where} must be one of {names}, got {value!r}") from None
