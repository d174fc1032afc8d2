"""What a process imports before it answers: what it does not need costs every start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import ENTRIES
from tests.databases import make_database

CONTROLLER = (
    "import orchestrator.bootstrap.controller_process, orchestrator.bootstrap.controller_wiring"
)
COMMAND = "import sys; sys.argv = ['seatrial', {!r}]; import orchestrator.__main__ as m; m.main()"


def imported(code: str) -> set[str]:
    """The modules that are there once the code has run."""
    told = f"import atexit, sys; atexit.register(lambda: print(*sys.modules))\n{code}"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, check=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


RUN = (
    "import orchestrator.bootstrap.cli_wiring; from orchestrator.cli.app import ENTRIES; "
    "ENTRIES['run'].load('run')"
)
SWEEP = """
import os, tempfile
from orchestrator.bootstrap.controller_wiring import build
from orchestrator.config import load
with tempfile.TemporaryDirectory() as home:
    os.environ["SEATRIAL_HOME"] = home
    parts = build(load(), runs_cells=False)
    parts.context.janitor.sweep()
    parts.database.close()
"""


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        (SWEEP, {"google.cloud.compute_v1", "google.cloud.tpu_v2", "grpc"}),
        ("import runners.workspace, runners.shell, runners.fake", {"paramiko"}),
        (RUN, {"paramiko", "sqlalchemy", "dbos", "securesystemslib"}),
        (
            CONTROLLER,
            {
                *("scipy", "numpy", "torch", "boto3", "google.cloud.compute_v1"),
                *("alembic", "cryptography", "rapidfuzz"),
            },
        ),
        (
            COMMAND.format("--version"),
            {"httpx", "sqlalchemy", "orchestrator.config", "orchestrator.cli.commands"},
        ),
        (
            COMMAND.format("--help"),
            {"httpx", "pydantic", "sqlalchemy", "orchestrator.config", "orchestrator.cli.commands"},
        ),
    ],
    ids=["sweep", "workspace", "run", "controller", "version", "help"],
)
def test_a_start_is_without_what_it_does_not_need(code: str, unneeded: set[str]) -> None:
    assert imported(code) & unneeded == set()


def test_a_controller_over_current_tables_is_without_migrations(tmp_path: Path) -> None:
    make_database(tmp_path)
    start = f"""
import os
from orchestrator.bootstrap.controller_wiring import build, open_to_read
from orchestrator.config import load
os.environ["SEATRIAL_HOME"] = {str(tmp_path)!r}
open_to_read(load())[0].close()
build(load(), runs_cells=False).database.close()
"""
    assert imported(start) & {"alembic", "mako", "pygments", "cryptography", "rapidfuzz"} == set()


def test_the_help_of_every_command_is_its_own() -> None:
    """Before they are imported, commands are known by a copy of their help's first paragraph."""
    for name, entry in ENTRIES.items():
        command = entry.load(name)
        told = " ".join((command.help or "").split("\n\n")[0].split())
        assert (entry.summary, entry.hidden) == (told, command.hidden), name
