"""Writes the generated reference pages: ``python -m docs.generate_reference``.

The keys of the matrix, the payload and the policy come from the dataclasses that read them, the
REST page from the OpenAPI document, and the command line's page from the commands.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from docs import json_answers
from docs.command_reference import reference as command_line
from docs.key_reference import replace_keys
from orchestrator.api.app import create_app
from orchestrator.application.context import Context
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import COMMON_KEYS, Matrix, Platform
from runners import registry

REFERENCE = Path(__file__).resolve().parent / "reference"
_REST_HEAD = """\
# REST

Made from the OpenAPI document. A controller serves that document at `/openapi.json`, and at `/docs`
a page that shows every request and response with examples.

"""


def pages() -> dict[Path, str]:
    """Each page as it should be."""
    matrix, payload, policy = (REFERENCE / f"{name}.md" for name in ("matrix", "payload", "policy"))
    openapi = create_app(cast(Context, None), guard=None).openapi()
    return {
        matrix: replace_keys(matrix.read_text(encoding="utf-8"), Matrix, platform_notes()),
        payload: replace_keys(payload.read_text(encoding="utf-8"), Manifest),
        policy: replace_keys(policy.read_text(encoding="utf-8"), GatePolicy),
        REFERENCE / "rest.md": rest(openapi),
        REFERENCE / "cli.md": command_line(),
        REFERENCE / "cli-json.md": json_answers.page(),
        REFERENCE / json_answers.SCHEMA_NAME: json_answers.text(openapi),
    }


def platform_notes() -> dict[str, str]:
    """Which providers take which of a platform's keys."""
    traits = [registry.traits(name) for name in sorted(registry.BUILT_IN)]
    notes = {}
    for field in fields(Platform):
        takers = [
            f"`{each.name}`{' (required)' if field.name in each.required else ''}"
            for each in traits
            if field.name in each.keys
        ]
        if field.name not in COMMON_KEYS:
            notes[f"Platform.{field.name}"] = f"Taken by: {', '.join(takers) or 'none yet'}."
    return notes


def rest(document: dict[str, Any]) -> str:
    """A table of operations for each group of the OpenAPI document."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            row = f"| `{method.upper()} {path}` | {_parameters(operation)} | {_about(operation)} |"
            groups[operation.get("tags", ["service"])[0]].append(row)
    head = "| operation | parameters and body | what it does |\n|---|---|---|\n"
    tables = (f"## {tag}\n\n{head}" + "\n".join(rows) for tag, rows in groups.items())
    return _REST_HEAD + document["info"]["description"] + "\n" + "\n\n".join(tables) + "\n"


def _parameters(operation: dict[str, Any]) -> str:
    names = [f"`{each['name']}`" for each in operation.get("parameters", ())]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        reference = content.get("schema", {}).get("$ref", "")
        names += [f"body: `{reference.rpartition('/')[2]}`"] if reference else ["body"]
    return ", ".join(dict.fromkeys(names))


def _about(operation: dict[str, Any]) -> str:
    return " ".join(operation.get("description", operation["summary"]).split()).replace("|", "\\|")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
