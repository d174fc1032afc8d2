"""The texts of ``payload.toml`` and ``seatrial.yaml`` for a project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.errors import CliError
from orchestrator.cli.starter.project_metadata import Project
from orchestrator.cli.starter.test_requirements import plugins_for

PAYLOAD = "payload.toml"
MATRIX = "seatrial.yaml"


@dataclass(frozen=True, slots=True)
class Written:
    """A file and its text."""

    path: Path
    text: str


def files_for(project: Project, folder: Path) -> tuple[Written, Written]:
    """What is to be written; nothing is."""
    return (
        Written(folder / PAYLOAD, payload_text(project)),
        Written(folder / MATRIX, matrix_text(project)),
    )


def payload_text(project: Project) -> str:
    """``payload.toml``: one suite with the project's tests."""
    wanted = project.needs.requirements
    requirements = [*wanted, *plugins_for(project.tests.options, wanted)]
    lines = [
        "schema = 1",
        f"name = {_toml(project.name)}",
        f"version = {_toml(project.version)}",
        "[setup]",
        f"pip = {_toml(requirements)}",
        "[[job]]",
        'id = "tests"',
        'kind = "suite"',
        f"pytest = {_toml(list(project.tests.arguments))}",
        "timeout_minutes = 30",
    ]
    if project.python_path:
        lines.append(f"env = {{PYTHONPATH = {_toml(project.python_path)}}}")
    return "\n".join(lines) + "\n"


def matrix_text(project: Project) -> str:
    """``seatrial.yaml``: all jobs, on this computer."""
    name, version = _toml(project.name), _toml(project.version)
    return f"""\
# Where the payload is tried. Add platforms: your own machines (static), or rented ones.
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: {name}}}
subject: {{name: {name}, version: {version}}}
payload: {{path: .}}
limits: {{max_minutes: 60}}
platforms:
  - {{id: local-cpu, provider: local}}
jobs:
  - {{select: "*", on: all}}
"""


def write_all(files: tuple[Written, ...], *, force: bool) -> None:
    """Write all of them or none. Raises CliError where one is there already."""
    there = [file.path for file in files if file.path.exists()]
    if there and not force:
        names = " and ".join(str(path) for path in there)
        raise CliError(f"{names} exist already: nothing was written (--force replaces them).")
    for file in files:
        try:
            file.path.write_text(file.text, encoding="utf-8")
        except OSError as error:
            raise CliError(f"{file.path}: {error.strerror or error}") from None


def _toml(value: str | list[str]) -> str:
    """A TOML (and YAML) string or list; JSON's escapes are both languages', too."""
    return json.dumps(value, ensure_ascii=True)
