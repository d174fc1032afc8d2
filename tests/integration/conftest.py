"""What the agent's tests share: a machine to run attempts on, and an interpreter with pytest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent_machine import Machine, lean_python, machine_at


@pytest.fixture(scope="session")
def lean(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that holds pytest and nothing heavy."""
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose attempts are all closed in the end."""
    with machine_at(tmp_path / "base") as machine:
        yield machine


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """An empty payload."""
    folder = tmp_path / "payload"
    folder.mkdir()
    return folder
