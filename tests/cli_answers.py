"""Holds what a command printed with ``--json`` against the committed schema."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parents[1] / "docs" / "reference" / "cli.schema.json"


@cache
def _schema() -> dict[str, Any]:
    """The schema, in which no object has a property that it does not name."""
    document: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for record in document["$defs"].values():
        if "properties" in record:
            record.setdefault("additionalProperties", False)
    return document


def answers() -> set[str]:
    """Every command that prints JSON, with the option that changes what it prints."""
    return {name for name in _schema()["$defs"] if name.startswith("seatrial ")}


def check(answer: str, text: str) -> None:
    """Fail where the text is not the answer of this command."""
    document = _schema() | {"$ref": f"#/$defs/{answer.replace(' ', '%20')}"}
    errors = [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(document).iter_errors(json.loads(text))
    ]
    assert not errors, "\n".join(errors[:10])
