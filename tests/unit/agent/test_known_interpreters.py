"""An interpreter is started once, until anything of its own has changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.agent import interpreters


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter with one package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    _package(python, "tool", "1.0")
    return python


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The interpreters that were started."""
    started: list[str] = []

    def counted(candidate: str) -> object:
        started.append(candidate)
        return ask(candidate)

    ask = interpreters.ask
    monkeypatch.setattr(interpreters, "ask", counted)
    monkeypatch.setattr(interpreters, "_SETTLED_NS", -(10**18))  # the files are all new
    return started


def _site(python: Path) -> Path:
    (site,) = python.parent.parent.glob("lib/python3*/site-packages")
    return site


def _package(python: Path, name: str, version: str) -> None:
    info = _site(python) / f"{name}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


def _replace_program(python: Path) -> None:
    target = python.resolve()
    python.unlink()
    shutil.copy(target, python)


def _path_file(python: Path) -> None:
    (_site(python) / "more.pth").write_text("/nonexistent\n")


def _settings(python: Path) -> None:
    file = python.parent.parent / "pyvenv.cfg"
    file.write_text(f"{file.read_text()}# more\n")


CHANGES: dict[str, Callable[[Path], None]] = {
    "a package is added": lambda python: _package(python, "other", "2.0"),
    "a package is written anew in its place": lambda python: _package(python, "tool", "1.10"),
    "a package is removed": lambda python: shutil.rmtree(_site(python) / "tool.dist-info"),
    "the program is another": _replace_program,
    "its path has one more file": _path_file,
    "its settings changed": _settings,
}


def test_it_is_started_once(python: Path, asked: list[str], tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    first = interpreters.describe(str(python), file)
    assert first["packages"] == {"tool": "1.0"}
    assert "watched" not in first
    assert interpreters.describe(str(python), file) == first
    assert asked == [str(python)]


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_it_is_started_again_after_a_change(
    python: Path, asked: list[str], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    file = tmp_path / "known.json"
    interpreters.describe(str(python), file)
    change(python)
    found = interpreters.describe(str(python), file)
    assert len(asked) == 2
    assert found == interpreters.ask(str(python))[0]


def test_after_a_reboot_nothing_is_known(
    python: Path, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "known.json"
    interpreters.describe(str(python), file)
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(interpreters, "_BOOT", tmp_path / "boot")
    interpreters.describe(str(python), file)
    assert len(asked) == 2


def test_what_may_still_be_changing_is_not_kept(python: Path, tmp_path: Path) -> None:
    """A second write within one tick of the file system's clock would not be seen."""
    file = tmp_path / "known.json"
    interpreters.describe(str(python), file)
    assert not file.exists()


@pytest.mark.parametrize(
    "said", ["", "{", "{}", "[]", '{"boot": "x", "known": {}}', "BOOT []", 'BOOT {"PYTHON": {}}']
)
def test_a_damaged_file_is_nothing_known(
    python: Path, asked: list[str], tmp_path: Path, said: str
) -> None:
    file = tmp_path / "known.json"
    if said.startswith("BOOT "):
        known = said.removeprefix("BOOT ").replace("PYTHON", str(python))
        said = f'{{"boot": {json.dumps(interpreters._boot())}, "known": {known}}}'
    file.write_text(said)
    assert interpreters.describe(str(python), file)["error"] is None
    assert len(asked) == 1


def test_a_failure_is_told_and_not_kept(asked: list[str], tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for _ in range(2):
        assert interpreters.describe(str(broken), file)["error"] == "exit code 1"
        assert interpreters.describe("no-such-python", file)["path"] is None
    assert len(asked) == 4
    assert not file.exists()
