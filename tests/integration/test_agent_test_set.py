"""What was collected, and what kept other tests out, is evidence."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import laid_out, lean_python, machine_at


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


FILES = {
    "pytest.ini": "[pytest]\nmarkers = slow\naddopts = -m 'not slow' --deselect t/test_a.py::test_b"
    " --ignore=t/test_away.py --continue-on-collection-errors\nnorecursedirs = gpu\n",
    "t/test_a.py": "import pytest\ndef test_a(): pass\ndef test_b(): pass\ndef test_key(): pass\n"
    "@pytest.mark.slow\ndef test_slow(): pass\ndef test_said(): pass\n",
    "t/test_module.py": "import pytest\npytest.skip('no device', allow_module_level=True)\n"
    "def test_never(): pass\n",
    "t/test_import.py": "import pytest\npytest.importorskip('no_such_thing')\n",
    "t/test_broken.py": "def test_hidden(): pass\nraise RuntimeError('broken')\n",
    "t/test_away.py": "def test(): pass\n",
    "t/gpu/test_gpu.py": "def test(): pass\n",
    "conftest.py": "collect_ignore = ['u/test_left.py']\n"
    "def pytest_collection_modifyitems(config, items):\n"
    "    said = [each for each in items if each.name == 'test_said']\n"
    "    items[:] = [each for each in items if each.name != 'test_said']\n"
    "    config.hook.pytest_deselected(items=said)\n",
    "u/conftest.py": "def pytest_collection_modifyitems(items):\n"
    "    items[:] = [each for each in items if each.name != 'test_silent']\n",
    "u/test_u.py": "def test_u(): pass\ndef test_silent(): pass\n",
    "u/test_left.py": "def test(): pass\n",
}


def cause(by: str, test: str, *, asked: bool = False) -> dict[str, Any]:
    return {"by": by, "count": 1, "tests": [test], "asked": asked}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_what_is_left_out_is_told_with_who_did_it(
    python: str, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    payload = laid_out(tmp_path / "payload", FILES)
    with machine_at(tmp_path / "base") as machine:
        jobs = [{"pytest": [*workers, "-k", "not key", "."]}]
        evidence = machine.run(payload, python=python, jobs=jobs)
    (told,) = [one for one in evidence.of("test") if one["record"] == "test_set"]
    (manifest,) = evidence.of("manifest")
    assert manifest["tests"] == ["t/test_a.py::test_a", "u/test_u.py::test_u"]
    assert told["collected"] == 2
    assert told["digest"] == hashlib.sha256(b"t/test_a.py::test_a\nu/test_u.py::test_u").hexdigest()
    assert told["deselected"] == [
        cause("--deselect", "t/test_a.py::test_b"),
        cause("-k", "t/test_a.py::test_key", asked=True),
        cause("-m", "t/test_a.py::test_slow"),
        cause("conftest.py", "t/test_a.py::test_said"),
        cause("conftest.py, u/conftest.py", "u/test_u.py::test_silent"),
    ]
    why = "Skipped: could not import 'no_such_thing': No module named 'no_such_thing'"
    assert told["modules"] == [
        ["t/test_import.py", why],
        ["t/test_module.py", "Skipped: no device"],
    ]
    assert told["ignored"] == [
        ["t/gpu", "norecursedirs"],
        ["t/test_away.py", "--ignore"],
        ["u/test_left.py", "conftest"],
    ]
    assert told["hidden"] == ["t/test_broken.py"]
    said = evidence.messages("warning")
    assert any("deselected by conftest.py: t/test_a.py::test_said" in text for text in said)
    assert not any("deselected by -k" in text for text in said)
    skipped = [one for one in evidence.of("test") if one["record"] == "collect_skip"]
    assert [one["nodeid"] for one in skipped] == ["t/test_import.py", "t/test_module.py"]


def test_what_the_agent_leaves_out_is_nobodys_deselecting(python: str, tmp_path: Path) -> None:
    payload = laid_out(
        tmp_path / "payload", {"test_a.py": "def test_a(): pass\ndef test_b(): pass"}
    )
    with machine_at(tmp_path / "base") as machine:
        jobs = [{"only": ["test_a.py::test_a"]}, {"id": "skips", "skip": ["test_a.py::test_a"]}]
        evidence = machine.run(payload, python=python, jobs=jobs)
    sets = [one for one in evidence.of("test") if one["record"] == "test_set"]
    assert [(one["collected"], one["deselected"]) for one in sets] == [(1, []), (2, [])]
