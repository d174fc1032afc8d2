"""``--set platform.field=value``: one key of one platform, for this launch only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from decimal import Decimal
from types import UnionType
from typing import Union, cast, get_args, get_origin, get_type_hints

from orchestrator.cli.errors import CliError
from orchestrator.domain.matrix import Matrix, Platform
from orchestrator.domain.problems import nearest

HEADER = {"apiVersion": "seatrial/v1", "kind": "Matrix"}
Document = dict[str, object]


def with_overrides(matrix: Matrix, settings: Sequence[str]) -> Document:
    """Return the matrix as a document, with the settings applied in their order.

    Raises CliError for a setting that is not ``platform.field=value``, or names nothing.
    """
    document = {**HEADER, **_plain(asdict(matrix))}
    for setting in settings:
        _apply(matrix, document, setting)
    return document


def _apply(matrix: Matrix, document: Document, setting: str) -> None:
    target, equals, value = setting.partition("=")
    platform_id, _, path = target.partition(".")
    if not (equals and platform_id and path):
        raise CliError(f"--set {setting}: write it as platform.field=value")
    ids = [platform.id for platform in matrix.platforms]
    if platform_id not in ids:
        said = f"the matrix has no platform {platform_id!r}{nearest(platform_id, ids)}"
        raise CliError(f"--set {setting}: {said}")
    place = cast(list[Document], document["platforms"])[ids.index(platform_id)]
    shape: type[object] | None = Platform
    *parents, last = path.split(".")
    for name in parents:
        hint = _hint(shape, name, setting)
        shape = _dataclass_in(hint)
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):
            raise CliError(f"--set {setting}: {name} has no keys of its own")
        place = inner
    place[last] = _typed(value, _hint(shape, last, setting), setting)


def _hint(shape: type[object] | None, name: str, setting: str) -> object:
    """The type of a field; anything at all inside a free mapping."""
    if shape is None:
        return str
    names = [f.name for f in fields(shape)]  # type: ignore[arg-type]  # only dataclasses come here
    if name == "id" or name not in names:
        names.remove("id") if "id" in names else None
        said = "cannot be changed" if name == "id" else f"is no key{nearest(name, names)}"
        raise CliError(f"--set {setting}: {name!r} {said}")
    hint: object = get_type_hints(shape)[name]
    return hint


def _dataclass_in(hint: object) -> type[object] | None:
    found = [one for one in _alternatives(hint) if isinstance(one, type) and is_dataclass(one)]
    return found[0] if found else None


def _alternatives(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _typed(value: str, hint: object, setting: str) -> object:
    """Read the text as the field's type; what remains wrong is the schema's to say."""
    kinds = _alternatives(hint)
    if bool in kinds:
        if value not in ("true", "false"):
            raise CliError(f"--set {setting}: write true or false")
        return value == "true"
    if int in kinds:
        try:
            return int(value)
        except ValueError:
            raise CliError(f"--set {setting}: {value!r} is no whole number") from None
    lists = any(get_origin(kind) is tuple for kind in kinds)
    if lists and ("," in value or not _takes_text(kinds, value)):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _takes_text(kinds: tuple[object, ...], value: str) -> bool:
    """Whether the field may be this text itself, and not only a list of texts."""
    return str in kinds or any(value in get_args(kind) for kind in kinds)


def _plain(value: Mapping[str, object]) -> Document:
    """Only what JSON has; what is not set is left out."""
    return {name: _jsonable(inner) for name, inner in value.items() if inner is not None}


def _jsonable(value: object) -> object:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, tuple | list):
        return [_jsonable(one) for one in value]
    return str(value) if isinstance(value, Decimal) else value
