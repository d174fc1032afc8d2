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
