"""What jobs added to their environment is removed before the next job; changes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.agent.attempt_context import JobRunner
from runners.agent.installed_packages import EnvironmentCopy, Files
from runners.agent.job_user import own_user
from runners.agent.payload_copy import PayloadCopy


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    site = tmp_path / "venv" / "lib" / "site-packages"
    (site / "tool" / "__pycache__").mkdir(parents=True)
    (site / "tool" / "__init__.py").write_text("answer = 42\n")
    (site.parent / "link").symlink_to("site-packages")
    return tmp_path / "venv"


def test_what_was_added_is_removed_and_named(venv: Path) -> None:
    environment = EnvironmentCopy(venv)
    site = venv / "lib" / "site-packages"
    (site / "zz.pth").write_text("import os")
    (site / "more").mkdir()
    (site / "more" / "__init__.py").write_text("")
    (site / "linked").symlink_to("/")
    (site / "tool" / "__pycache__" / "tool.pyc").write_bytes(b"1")
    added = [f"lib/site-packages/{name}" for name in ("linked", "more/__init__.py", "zz.pth")]
    assert environment.restore() == added
    assert environment.restore() == []
    assert (site / "tool" / "__pycache__" / "tool.pyc").exists()


def test_what_was_added_to_a_folder_is_found_where_it_is(venv: Path, tmp_path: Path) -> None:
    environment = EnvironmentCopy(venv)
    tool = venv / "lib" / "site-packages" / "tool"
    (tool / "__pycache__" / "tool.pyc").write_bytes(b"1")
    (tool / "data").mkdir()
    (tool / "data" / "a.json").write_text("{}")
    (tool.parent / "beside.py").write_text("")
    (tmp_path / "outside").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    gone = (tmp_path / "gone", tmp_path, tmp_path / "loop")
    found = environment.added([venv / "lib" / "link" / "tool", *gone])
    assert set(found) == {tool / "data" / "a.json", tool.parent / "beside.py"}


def test_a_copied_file_is_told_where_the_package_is_a_link(venv: Path, tmp_path: Path) -> None:
    site = venv / "lib" / "site-packages"
    (site / "tool").rename(venv / "elsewhere")
    (site / "tool").symlink_to(venv / "elsewhere")
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "a.json").write_text("{}")
    runner = JobRunner(
        user=own_user(""),
        variables={},
        secrets={},
        gpus=0,
        payload=PayloadCopy(tmp_path / "payload", tmp_path / "payload", ()),
        environment=EnvironmentCopy(venv),
        installed=(Files("tool", "wrong_subject", site, {"tool/__init__.py": ""}, {}, {}, ""),),
    )
    (venv / "elsewhere" / "loop").symlink_to("loop")
    assert runner.copied() is None
    (venv / "elsewhere" / "a.json").write_text("{}")
    refusal = runner.copied()
    assert refusal is not None
    assert "elsewhere/a.json of tool is the payload's a.json, which a job put" in refusal.detail


@pytest.mark.parametrize("how", ["written", "removed", "link"])
def test_what_was_changed_is_told(venv: Path, how: str) -> None:
    environment = EnvironmentCopy(venv)
    file = venv / "lib" / "site-packages" / "tool" / "__init__.py"
    if how == "link":
        (venv / "lib" / "link").unlink()
        (venv / "lib" / "link").symlink_to("/")
    else:
        file.unlink()
    if how == "written":
        file.write_text("answer = 43\n")
    with pytest.raises(OSError, match="of the environment differ from what was installed"):
        environment.restore()
