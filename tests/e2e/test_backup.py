"""The page about backups, followed while a run goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli_answers import check
from tests.e2e import doc_pages
from tests.e2e.home import Home, a_home, eventually
from tests.e2e.payloads import Steps, matrix


def followed(home: Home, folder: Path, text: str) -> None:
    """Run a block of the page."""
    programs = str(Path(sys.executable).parent)
    environment = {**home.environment, "PATH": f"{programs}:{home.environment['PATH']}"}
    done = subprocess.run(
        ["bash", "-eu", "-c", text], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_backup_of_a_run_that_goes_on_is_restored_elsewhere(tmp_path):
    first, second = [
        one.text for one in doc_pages.blocks("how-to/backup.md") if one.language == "sh"
    ]
    steps = Steps(tmp_path / "steps", tests=60, seconds=0.5)
    with a_home(tmp_path / "home") as home:
        run = home.launch(matrix(tmp_path / "m.yaml", steps.folder))
        eventually(lambda: home.tests_stored(run) >= 3)
        followed(home, tmp_path, first)
        home.seatrial("cancel", run)
        eventually(lambda: home.json("show", run)["state"] == "finished")
        followed(home, tmp_path, second)
    shutil.rmtree(tmp_path / "home")
    with a_home(tmp_path / "restored") as restored:
        restored.start_controller()
        eventually(lambda: restored.json("show", run)["state"] == "finished")
        shown = restored.json("show", run)
        assert shown["cancel_requested_at"]
        assert shown["counts"]["passed"] >= 2
        assert [one["operation"] for one in restored.json("audit", "list")][:1] == ["restore"]
        restored.seatrial("audit", "verify")
    other = Home(tmp_path / "again")
    printed = other.seatrial("restore", str(tmp_path / "controller.tar.gz"), "--json")
    check("seatrial restore", printed)
