"""Descriptions of fields are read when somebody asks for the schema, not at every start."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from orchestrator.api.models import DescribedModel, documented

COUNT = """
from unittest.mock import Mock
import pydantic._internal._fields as fields
read, seen = fields.extract_docstrings_from_cls, []
def counted(cls, *given, **named):
    seen.append(cls)
    return read(cls, *given, **named)
fields.extract_docstrings_from_cls = counted
from orchestrator.api.app import create_app
create_app(Mock(), guard=None)
print(len(seen))
"""
MOST = 60
"""Classes whose source file is parsed at a start: documents that people write, and few more."""


def test_a_start_parses_few_source_files() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=root, capture_output=True, text=True, check=True
    )
    assert 0 < int(done.stdout) <= MOST


class Parent(DescribedModel):
    first: int
    """Of the parent."""
    second: int
    third: int
    """In two
    lines."""


class Child(Parent):
    second: int
    """Of the child."""


@dataclass(frozen=True)
class Record:
    one: int
    """Of a record."""
    other: int = 0


documented(Record)


def test_the_text_below_a_field_is_its_description() -> None:
    described = {
        name: field.get("description")
        for name, field in Child.model_json_schema()["properties"].items()
    }
    assert described == {
        "first": "Of the parent.",
        "second": "Of the child.",
        "third": "In two\nlines.",
    }
    found = TypeAdapter(Record).json_schema()["properties"]
    assert found["one"]["description"] == "Of a record."
    assert "description" not in found["other"]


LEFT_OUT = """
import orchestrator.api.described_records
from orchestrator.store.column_types import DocumentColumn
from orchestrator.store.tables.shared_columns import TableBase

def left_out(part):
    if isinstance(part, dict):
        if part.get("serialization_exclude"):
            yield part["name"] if "name" in part else "a field"
        for one in part.values():
            yield from left_out(one)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from left_out(one)

columns = [(table, column) for table in TableBase.metadata.tables.values() for column in table.c]
documents = [(t, c) for t, c in columns if isinstance(c.type, DocumentColumn)]
assert len(documents) > 5
for table, column in documents:
    for name in left_out(column.type._adapter.core_schema):
        print(table.name, column.name, name)
"""


def test_no_field_that_an_answer_leaves_out_is_lost_in_the_database() -> None:
    """In a process that imports the API before the store, as a controller may."""
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", LEFT_OUT], cwd=root, capture_output=True, text=True, check=True
    )
    assert found.stdout == ""
