"""Descriptions of fields: the text below each, read when a JSON Schema is asked for.

pydantic would read them where a class is made (``use_attribute_docstrings``), which parses a source
file for each at the start of a controller.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

Descriptions = Mapping[str, str]


class DescribedModel(BaseModel):
    """A model whose fields are described by the text below each."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return its JSON Schema."""
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
    """Return the text below each field of a class and of those that it inherits from."""
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
