"""Calls held against the descriptors that the client library has of Compute Engine."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from google.cloud import compute_v1
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.lab.google.front import ApiError, Json, Request

_ALWAYS = frozenset({"$alt", "alt", "fields", "key", "prettyPrint", "quotaUser", "userIp"})
"""Parameters that each call of Google's REST services may have."""
_OF_LISTS = frozenset({"returnPartialSuccess"})
"""Of Compute Engine's lists, by its REST reference; the client library's requests lack it."""


def check_query(request: Request, library: ModuleType) -> None:
    """Refuse a query parameter that the method does not have. Raises ApiError, 400."""
    fields = {
        field.json_name for field in _request_of(request.name, library).pb().DESCRIPTOR.fields
    }
    is_list = request.name.lower().endswith("list") and library is compute_v1
    known = fields | _ALWAYS | (_OF_LISTS if is_list else frozenset())
    for name in request.query:
        if name.partition(".")[0] not in known:
            raise ApiError(
                "badRequest",
                f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query '
                "parameter. Field could not be found in request message.",
            )


@cache
def _request_of(method: str, library: ModuleType) -> Any:
    """The class of a method's request: of ``zoneOperations.get``, GetZoneOperationRequest."""
    collection, _, verb = method.partition(".")
    many = collection[0].upper() + collection[1:]
    one = many.removesuffix("es") if many == "Addresses" else many.removesuffix("s")
    known = (f"{verb[0].upper()}{verb[1:]}{noun}Request" for noun in (many, one))
    return next(getattr(library, name) for name in known if hasattr(library, name))


def check_body(kind: Any, body: Json) -> None:
    """Refuse a field that there is not, a value of another type, and a word of no enumeration.

    Args:
        kind: The class of the client library: ``compute_v1.Instance``.
        body: As it came over the wire.

    Raises:
        ApiError: 400.
    """
    try:
        message = json_format.ParseDict(body, kind.pb()())
    except json_format.ParseError as error:
        raise ApiError("badRequest", f"Invalid JSON payload received. {error}") from None
    _check_words(message, "resource")


def _check_words(message: Message, path: str) -> None:
    for field, value in message.ListFields():
        name = f"{path}.{field.json_name}"
        values = value if field.is_repeated else [value]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for each in values:
            if isinstance(each, Message):
                _check_words(each, name)
            elif isinstance(each, str):
                _check_word(message, field, each, name)


def _check_word(message: Message, field: FieldDescriptor, word: str, name: str) -> None:
    # Enumerations are strings on the wire; the library lists their words beside the field.
    spelled = "".join(part.capitalize() for part in field.name.strip("_").split("_"))
    known = message.DESCRIPTOR.enum_types_by_name.get(spelled)
    if known is not None and word not in known.values_by_name:
        raise ApiError("invalid", f"Invalid value for field '{name}': '{word}'.")
