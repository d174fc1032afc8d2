"""What many tests share: a machine for the agent with a lean pytest, and a REST interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent_machine import Machine, lean_python, machine_at
from tests.integration.api_context import Desk, Slots, desk
from tests.integration.webhook_receiver import Receiver, receiver


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


@pytest.fixture(scope="session")
def slots(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Slots:
    """SQLite databases to use again."""
    return Slots(sqlite_template, tmp_path_factory.mktemp("slots"))


@pytest.fixture
def api(tmp_path: Path, slots: Slots) -> Iterator[Desk]:
    """The interface over an empty database."""
    with slots.fresh() as database, desk(tmp_path, database) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory: pytest.TempPathFactory, slots: Slots) -> Iterator[Desk]:
    """The same for a whole module, whose tests leave it as they found it."""
    home = tmp_path_factory.mktemp("home")
    with slots.fresh() as database, desk(home, database) as opened:
        yield opened


@pytest.fixture
def hook() -> Iterator[Receiver]:
    """A server that keeps what it is sent."""
    with receiver() as one:
        yield one
