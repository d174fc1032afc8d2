"""Bodies of calls held against the descriptors that the client library has of Compute Engine."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.lab.google.front import ApiError, Json


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
