"""What was installed stays as it was while jobs run, and byte code that they leave is not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_machine import SUBJECT, Evidence, command, laid_out, machine_at
from tests.integration.test_agent_environment import wheel
from tests.integration.wheel_making import wheel_bytes

TEST = "import tool.part\ndef test_answer():\n    assert tool.part.answer == 42\n"


PART = """
import importlib.util, pathlib
part = pathlib.Path(importlib.util.find_spec("tool.part").origin)
"""
CHANGED = f"{PART}part.write_text('answer = 43')\n"
RECORDED = """
import base64, hashlib
raw = hashlib.sha256(part.read_bytes()).digest()
[record] = part.parent.parent.glob("tool-*.dist-info/RECORD")
rows = [row for row in record.read_text().splitlines() if not row.startswith("tool/part.py,")]
digest = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
record.write_text("\\n".join([f"tool/part.py,sha256={digest},11", *rows]) + "\\n")
"""
BYTE_CODE = f"""{PART}
import importlib._bootstrap_external as external
cache = pathlib.Path(importlib.util.cache_from_source(str(part)))
code = compile("answer = 43", str(part), "exec")
stat = part.stat()
cache.parent.mkdir(exist_ok=True)
cache.write_bytes(external._code_to_timestamp_pyc(code, int(stat.st_mtime), stat.st_size))
"""


def suites(folder: Path, python: str, files: dict[str, str], *jobs: dict[str, Any]) -> Evidence:
    with machine_at(folder / "base") as machine:
        wheel(machine.base / "wheels" / "w1", "tool", "1.5")
        payload = laid_out(folder / "payload", files)
        return machine.run(payload, python=python, wheels="w1", subject=SUBJECT, jobs=jobs)


def test_byte_code_is_not_run_by_later_jobs_and_what_they_changed_is_found(
    lean: str, tmp_path: Path
) -> None:
    ran = suites(
        tmp_path,
        lean,
        {"test_a.py": TEST},
        command("{python}", "-c", BYTE_CODE, id="leaves-byte-code"),
        {"id": "without"},
        command("{python}", "-c", CHANGED + RECORDED, id="changes"),
        {"id": "changed"},
    )
    without = ran.finished("without")
    assert (without["exit_code"], without["cause"]) == (0, None), ran.log.decode()
    changed = ran.finished("changed")
    assert changed["cause"] == "wrong_subject", ran.log.decode()
    assert "tool/part.py of tool was changed" in changed["detail"]


def test_what_a_conftest_changes_is_found(lean: str, tmp_path: Path) -> None:
    files = {"test_a.py": TEST, "conftest.py": CHANGED + RECORDED}
    finished = suites(tmp_path, lean, files, {}).finished()
    assert finished["cause"] == "wrong_subject"
    assert "tool/part.py of tool was changed" in finished["detail"]


COMPILED = """
import sys, tool.lean
def test_first(): pass
def test_second():
    [comparison] = sys.modules["seatrial_code"]._COMPARISON
    assert "late" in comparison._source(tool.lean.__file__).names
    assert sum(source.size for source in comparison._sources.values()) {} 0
"""
LEAN = """
import importlib.util, pathlib
import importlib._bootstrap_external as external
lean = pathlib.Path(importlib.util.find_spec("tool").origin).with_name("lean.py")
cache = pathlib.Path(importlib.util.cache_from_source(str(lean)))
assert cache.exists()
"""
WRITTEN = f"""{LEAN.replace("assert cache.exists()", "cache.parent.mkdir(exist_ok=True)")}
stat = lean.stat()
code = compile("def late():\\n    return 42", str(lean), "exec")
cache.write_bytes(external._code_to_timestamp_pyc(code, int(stat.st_mtime), stat.st_size))
"""


def test_the_installers_byte_code_saves_compiling_the_subject(lean: str, tmp_path: Path) -> None:
    ran = suites(tmp_path, lean, {"test_a.py": COMPILED.format("==")}, {})
    assert (ran.finished()["exit_code"], ran.finished()["cause"]) == (0, None), ran.log.decode()


def test_byte_code_that_a_conftest_writes_is_not_taken_for_the_installers(
    lean: str, tmp_path: Path
) -> None:
    test = "import tool.lean\ndef test_late():\n    assert tool.lean.late() == 42\n"
    ran = suites(tmp_path, lean, {"test_a.py": test, "conftest.py": WRITTEN}, {})
    assert ran.finished()["cause"] == "wrong_subject", ran.log.decode()
    assert "does not compile to its code" in ran.finished()["detail"]


def _beside(
    folder: Path, python: str, files: Mapping[str, str], test: str, name: str = "helper"
) -> Evidence:
    """Run a suite where the tool requires a package of these files."""
    with machine_at(folder / "base") as machine:
        wheels = machine.base / "wheels" / "w1"
        wheel(wheels, "tool", "1.5", requires=name)
        made = wheels / f"{name}-1.0-py3-none-any.whl"
        made.write_bytes(wheel_bytes(name, "1.0", files=files))
        payload = laid_out(folder / "payload", {"test_a.py": test})
        return machine.run(payload, python=python, wheels="w1", subject=SUBJECT, jobs=[{}])


def test_byte_code_that_another_package_writes_at_every_start_is_not_the_installers(
    lean: str, tmp_path: Path
) -> None:
    """Its file runs in pip, and in whatever reads what was installed; the evidence names it."""
    body = "".join(f"    {line}\n" for line in WRITTEN.splitlines())
    code = (
        "import atexit, sys\n"
        "def write():\n    import importlib.util\n"
        f"    if not importlib.util.find_spec('tool'): return\n{body}"
        "    print('noise ' * 5000, file=sys.stderr)\nwrite()\natexit.register(write)\n"
    )
    files = {"helper.py": code, "helper.pth": "import helper\n", "plain.pth": "/nowhere\n"}
    test = "import tool.lean\ndef test_late():\n    assert tool.lean.late() == 42\n"
    ran = _beside(tmp_path, lean, files, test)
    assert ran.finished()["cause"] == "wrong_subject", ran.log.decode()
    assert "does not compile to its code" in ran.finished()["detail"]
    told = [one for one in ran.of("test", "suite") if one["record"] == "test_set"][-1]
    assert told["hooks"] == [["runs when Python starts", "helper.pth"]]


@pytest.mark.parametrize(
    ("name", "said"),
    [("coverage", []), ("helper", [["runs when Python starts", "a1_coverage.pth"]])],
)
def test_a_well_known_packages_own_file_for_pythons_start_is_not_named(
    lean: str, tmp_path: Path, name: str, said: list[list[str]]
) -> None:
    files = {"plain.py": "", "a1_coverage.pth": "import sys\n"}
    ran = _beside(tmp_path, lean, files, TEST, name)
    told = [one for one in ran.of("test", "suite") if one["record"] == "test_set"][-1]
    assert told["hooks"] == said


def test_a_package_that_replaces_the_agents_own_file_of_the_environment_is_refused(
    lean: str, tmp_path: Path
) -> None:
    files = {"seatrial_overlay.pth": "import this\n"}
    (end,) = _beside(tmp_path, lean, files, TEST).of("end")
    assert end["reason"] == "environment"
    assert "what was installed replaced seatrial_overlay.pth" in end["detail"]


def test_more_byte_code_than_the_installer_wrote_is_no_alarm(lean: str, tmp_path: Path) -> None:
    more = f"{LEAN}cache.with_name('more.pyc').touch()\n"
    ran = suites(tmp_path, lean, {"test_a.py": COMPILED.format("=="), "conftest.py": more}, {})
    assert (ran.finished()["exit_code"], ran.finished()["cause"]) == (0, None), ran.log.decode()
