"""Base models of the API's JSON objects, and descriptions of their fields; formats of values.

The description of a field is the text below it, read when a JSON Schema is asked for: pydantic
would read it where a class is made (``use_attribute_docstrings``), which parses a source file for
each at the start of a controller.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import cache
from inspect import getdoc
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from orchestrator.domain.outcome import TestOutcome

Descriptions = Mapping[str, str]


class DescribedModel(BaseModel):
    """A model whose JSON Schema describes each field with the docstring below the field."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the model's JSON Schema, with a description of each field."""
        return described(cls, schema, handler)


def described(record: type, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
    """Return the JSON Schema of a record with the descriptions of its fields.

    For ``__get_pydantic_json_schema__``.
    """
    found = handler(schema)
    properties = handler.resolve_ref_schema(found).get("properties", {})
    for name, text in _descriptions(record).items():
        key = _key(record, name)
        if key in properties:
            properties[key].setdefault("description", text)
    return found


def _key(record: type, name: str) -> str:
    if issubclass(record, BaseModel) and name in record.model_fields:
        return record.model_fields[name].alias or name
    return name


def _descriptions(record: type) -> Descriptions:
    """Return the docstring of each field of a class and its base classes, by field name."""
    found: dict[str, str] = {}
    for parent in reversed(record.__mro__[:-1]):
        found |= _of_module(parent.__module__).get(parent.__qualname__, {})
    return found


@cache
def _of_module(name: str) -> Mapping[str, Descriptions]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):
        return {}  # it has no source, as a class that was made by a call
    return {one.name: _of_class(one) for one in tree.body if isinstance(one, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> Descriptions:
    found = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = inspect.cleandoc(str(below.value.value))
    return found


T = TypeVar("T")

Usd = Annotated[Decimal, PlainSerializer(lambda usd: format(usd, "f"), return_type=str)]
"""Decimal text, never in exponent form."""


def documented(
    *records: type,
    derived: Sequence[str] = (),
    without: Collection[str] = (),
    is_sent: bool = False,
) -> None:
    """Register dataclasses as responses, with their docstrings as descriptions.

    The response has every field, described by the docstring below it. Money is written as `Usd`,
    and the outcome of a test as its word. Call this before a route with the records is declared.

    Args:
        records: The dataclasses.
        derived: Names of properties that are in the response too; clients compute them again.
        without: Names of fields that are not in the response; clients need defaults for them.
        is_sent: Whether requests contain the record as well; then unknown keys are refused.
    """
    config = ConfigDict(json_schema_serialization_defaults_required=True)
    if is_sent:
        config["extra"] = "forbid"
    for record in records:
        record.__pydantic_config__ = config  # type: ignore[attr-defined]  # pydantic reads it
        schema = classmethod(_schema_with(derived, without))
        record.__get_pydantic_core_schema__ = schema  # type: ignore[attr-defined]  # it calls it
        record.__get_pydantic_json_schema__ = classmethod(described)  # type: ignore[attr-defined]


def _schema_with(derived: Sequence[str], without: Collection[str]) -> Callable[..., CoreSchema]:
    """Build pydantic's schema of a record.

    The schema is made once and kept on the class, as pydantic's own models keep theirs: every
    route that answers with the record needs it.
    """

    def schema_of(record: type, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401 - pydantic's signature
        if record not in _IN_MAKING:
            if "__pydantic_core_schema__" not in record.__dict__:
                _make(record)
            return handler(source)
        schema = handler(source)
        _write_plainly(schema)
        parts: Any = schema
        while parts["type"] != "dataclass-args":
            parts = parts["schema"]
        for field in parts["fields"]:
            field["serialization_exclude"] = field["name"] in without
        parts["computed_fields"] = [_computed(record, name, handler) for name in derived]
        return schema

    return schema_of


_IN_MAKING: set[type] = set()


def _make(record: type) -> None:
    """Store the record's schema where pydantic looks for it."""
    _IN_MAKING.add(record)
    try:
        made: TypeAdapter[Any] = TypeAdapter(record)
    finally:
        _IN_MAKING.discard(record)
    record.__pydantic_core_schema__ = made.core_schema  # type: ignore[attr-defined]
    record.__pydantic_validator__ = made.validator  # type: ignore[attr-defined]
    record.__pydantic_serializer__ = made.serializer  # type: ignore[attr-defined]


def _computed(record: type, name: str, handler: GetCoreSchemaHandler) -> core_schema.ComputedField:
    """Return the schema of a property that is added to a record's response."""
    read: property = getattr(record, name)
    returned = handler.generate_schema(get_type_hints(read.fget)["return"])
    _write_plainly(returned)
    updates = {"description": getdoc(read), "readOnly": True}
    return core_schema.computed_field(name, returned, metadata={"pydantic_js_updates": updates})


_PLAIN_MONEY = core_schema.plain_serializer_function_ser_schema(
    lambda usd: format(usd, "f"), return_schema=core_schema.str_schema()
)


_REFERENCE = f"{TestOutcome.__module__}.{TestOutcome.__qualname__}:"
"""Beginning of pydantic's reference to the schema of `TestOutcome`."""
_TEST_OUTCOME = core_schema.enum_schema(
    TestOutcome,
    list(TestOutcome),
    serialization=core_schema.plain_serializer_function_ser_schema(
        lambda outcome: outcome.word, return_schema=core_schema.str_schema()
    ),
)


def _write_plainly(schema: Any) -> None:  # noqa: ANN401 - a tree of dicts and lists
    """Change a schema in place: Decimals are written as `Usd`, test outcomes as their words."""
    if isinstance(schema, list):
        for one in schema:
            _write_plainly(one)
    elif isinstance(schema, dict):
        if schema.get("type") == "decimal":
            schema["serialization"] = _PLAIN_MONEY
        elif (schema.get("schema_ref") or schema.get("ref") or "").startswith(_REFERENCE):
            schema.clear()
            schema.update(_TEST_OUTCOME)
        for one in [*schema.values()]:
            _write_plainly(one)


class ResponseModel(DescribedModel):
    """A JSON object of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RequestModel(DescribedModel):
    """A JSON object of a request; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def document_source(title: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """Return the annotations of a field that takes a document: YAML text, or an object."""

    def check(value: object) -> object:
        if not isinstance(value, str | dict):
            raise ValueError(f"a {title.lower()} is the text of a YAML file, or an object")
        return value

    schema = {"anyOf": [{"type": "string"}, {"type": "object"}], "title": title}
    return BeforeValidator(check), WithJsonSchema(schema)


class ListResponse(ResponseModel, Generic[T]):
    """All items, in the route's order."""

    items: list[T]


class PageResponse(ListResponse[T], Generic[T]):
    """A page of items, in the route's order."""

    next: str | None
    """Cursor of the next page, for the route's `before` or `after`; null on the last one."""


class NumberedPageResponse(ListResponse[T], Generic[T]):
    """A page of items, in the route's order."""

    next: int | None
    """Cursor of the next page, for the route's `before` or `after`; null on the last one."""
