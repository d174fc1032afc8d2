"""What was installed stays as it was while jobs run, and byte code that they leave is not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.agent_machine import SUBJECT, command, laid_out, lean_python, machine_at
from tests.integration.test_agent_environment import wheel

TEST = "import tool.part\ndef test_answer():\n    assert tool.part.answer == {}\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


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


@pytest.mark.parametrize(
    ("before", "conftest", "answer", "cause", "says"),
    [
        (CHANGED, "", 43, "wrong_subject", "tool/part.py of tool was changed"),
        (CHANGED + RECORDED, "", 43, "wrong_subject", "tool/part.py of tool was changed"),
        ("pass", CHANGED + RECORDED, 43, "wrong_subject", "tool/part.py of tool was changed"),
        (BYTE_CODE, "", 43, None, "exit code 1"),
        (BYTE_CODE, "", 42, None, "exit code 0"),
        ("import tool.part", "", 42, None, "exit code 0"),
    ],
    ids=["a file", "and RECORD", "by conftest", "byte code", "no effect", "honest"],
)
def test_what_was_installed_stays_so(
    python: str,
    tmp_path: Path,
    before: str,
    conftest: str,
    answer: int,
    cause: str | None,
    says: str,
) -> None:
    """By an earlier job or from inside; byte code that jobs leave is not run by later ones."""
    with machine_at(tmp_path / "base") as machine:
        wheel(machine.base / "wheels" / "w1", "tool", "1.5")
        files = {"test_a.py": TEST.format(answer), "conftest.py": conftest}
        evidence = machine.run(
            laid_out(tmp_path / "payload", files),
            python=python,
            wheels="w1",
            subject=SUBJECT,
            jobs=[command("{python}", "-c", before), {}],
        )
    finished = evidence.finished("suite")
    assert finished["cause"] == cause, evidence.log.decode()
    assert says in finished["detail"]
