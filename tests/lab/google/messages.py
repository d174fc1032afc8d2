"""Requests of Cloud TPU held against the client library's descriptors and its reference.

A field that there is not, a number of no enumeration, a text of another form and a required field
that is missing are refused. What the reference says of a field stands in its class' docstring:
``Required.`` at its beginning.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from tests.lab.google.refusal import RpcError

_REQUIRED = re.compile(r"^ {8}(\w+) \([^\n]*\):\n\s+Required\.", re.MULTILINE)
_RESOURCE = re.compile(r"projects/[^/]+/locations/[^/]+(/(nodes|queuedResources)/[^/]+)?")
_NAMES = ("name", "parent")
LONGEST_PAGE = 1000


def check_request(request: Any) -> None:
    """Refuse what Cloud TPU would, or might. Raises RpcError, INVALID_ARGUMENT."""
    message = request if isinstance(request, Message) else type(request).pb(request)
    _check(message, "")
    for field, value in message.ListFields():
        if field.name in _NAMES and message.DESCRIPTOR.full_name in required():
            _check_resource(field.name, value)
        if field.name == "page_size" and not 0 <= value <= LONGEST_PAGE:
            raise _refusal(f"Invalid value at 'page_size': {value}")


@cache
def required() -> dict[str, frozenset[str]]:
    """The required fields of each message of the API, by its full name."""
    kinds = [kind for _, kind in inspect.getmembers(tpu_v2, inspect.isclass) if hasattr(kind, "pb")]
    return {
        kind.pb().DESCRIPTOR.full_name: frozenset(
            name.rstrip("_") for name in _REQUIRED.findall(kind.__doc__ or "")
        )
        for kind in kinds
    }


def _check(message: Message, path: str) -> None:
    for unknown in UnknownFieldSet(message):
        name = f"{message.DESCRIPTOR.name}.{unknown.field_number}"
        raise _refusal(f'Invalid payload received. Unknown field "{path}{name}"')
    given = {field.name.rstrip("_"): (field, value) for field, value in message.ListFields()}
    for name in sorted(required().get(message.DESCRIPTOR.full_name, frozenset()) - given.keys()):
        raise _refusal(f"Required field '{path}{name}' is missing")
    for name, (field, value) in given.items():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            if isinstance(each, Message):
                _check(each, f"{path}{name}.")
            elif field.enum_type is not None:
                _check_number(field, each, f"{path}{name}")


def _check_number(field: FieldDescriptor, number: int, path: str) -> None:
    assert field.enum_type is not None
    if number not in field.enum_type.values_by_number:
        raise _refusal(f"Invalid value at '{path}' ({field.enum_type.full_name}), {number}")


def _check_resource(name: str, value: str) -> None:
    if not _RESOURCE.fullmatch(value):
        raise _refusal(f"Malformed {name}: '{value}'")


def _refusal(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)
