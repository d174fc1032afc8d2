"""Test records that something other than the recorder wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.agent_machine import laid_out, lean_python, machine_at


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


REPORT = '{"record": "report", "nodeid": "%s", "when": "%s", "outcome": "passed", "duration": 0}'
RAW = """
import os
def say(*lines):
    fd = os.open(os.environ["SEATRIAL_RECORDS"], os.O_WRONLY)
    os.write(fd, ("\\n" + "\\n".join(lines) + "\\n").encode())
"""
ALL_PASSED = ", ".join(
    repr(REPORT % ("test_a.py::test", when)) for when in ("setup", "call", "teardown")
)
PATCHED = """
import seatrial_pytest
real = seatrial_pytest._report
def forged(report, records):
    return {**real(report, records), "outcome": "passed"}
seatrial_pytest._report = forged
"""
HOOK = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
FAILS = "def test(): assert False\n"


@pytest.mark.parametrize(
    ("test", "conftest", "cause"),
    [
        (f"{RAW}def test():\n    say({ALL_PASSED})\n    os._exit(0)\n", "", "forged_records"),
        (FAILS, f"{RAW}import atexit\natexit.register(say, {ALL_PASSED})\n", "forged_records"),
        ("import os\ndef test(): pass\n",
         "import os\ndef pytest_runtest_logfinish(): os._exit(0)\n",
         "forged_records"),
        (FAILS, PATCHED, "forged_records"),
        ("import os\ndef test(): os.closerange(3, 100)\ndef test_b(): pass\n", "", None),
        (FAILS, HOOK, None),
    ],
    ids=["os._exit", "atexit", "early", "patched", "closed", "hook"],
)  # fmt: skip
def test_records_that_the_recorder_did_not_write(
    python: str, tmp_path: Path, test: str, conftest: str, cause: str | None
) -> None:
    payload = laid_out(tmp_path / "payload", {"test_a.py": test, "conftest.py": conftest})
    with machine_at(tmp_path / "base") as machine:
        evidence = machine.run(payload, python=python)
    finished = evidence.finished()
    assert finished["cause"] == cause, (finished, evidence.log.decode())
    told = [one for one in evidence.of("test") if one["record"] == "test_set"][-1]
    hooks = [["pytest_runtest_makereport", "conftest.py"]] if conftest == HOOK else []
    assert told["hooks"] == hooks
    if "closerange" in test:
        assert evidence.outcomes() == {"test_a.py::test": "crashed", "test_a.py::test_b": "passed"}
