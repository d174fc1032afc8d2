"""Test records that something other than the recorder wrote."""

from __future__ import annotations

import pytest

from tests.integration.agent_machine import Evidence, laid_out, machine_at

REPORT = '{"record": "report", "nodeid": "%s", "when": "%s", "outcome": "passed", "duration": 0}'
RAW = """
import os
def say(*lines):
    fd = os.open(os.environ["SEATRIAL_RECORDS"], os.O_WRONLY)
    os.write(fd, ("\\n" + "\\n".join(lines) + "\\n").encode())
"""


def passed(folder: str) -> str:
    """Records of a test of that folder that passed, as literals."""
    whens = ("setup", "call", "teardown")
    return ", ".join(repr(REPORT % (f"{folder}/test_a.py::test", when)) for when in whens)


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


CASES = {
    "exits": (f"{RAW}def test():\n    say({passed('exits')})\n    os._exit(0)\n", ""),
    "at-exit": (FAILS, f"{RAW}import atexit\natexit.register(say, {passed('at-exit')})\n"),
    "early": ("import os\ndef test(): pass\n",
              "import os\ndef pytest_runtest_logfinish(): os._exit(0)\n"),
    "patched": (FAILS, PATCHED),
    "closed": ("import os\ndef test(): os.closerange(3, 100)\ndef test_b(): pass\n", ""),
    "hook": (FAILS, HOOK),
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, lean: str) -> Evidence:
    """One attempt with a suite for each way to write records."""
    files = {f"{name}/test_a.py": test for name, (test, _) in CASES.items()}
    conftests = {f"{name}/conftest.py": text for name, (_, text) in CASES.items()}
    payload = laid_out(tmp_path_factory.mktemp("payload"), {**files, **conftests})
    jobs = [{"id": name, "pytest": [name]} for name in CASES]
    with machine_at(tmp_path_factory.mktemp("machine") / "base") as machine:
        return machine.run(payload, python=lean, jobs=jobs)


@pytest.mark.parametrize("name", CASES)
def test_records_that_the_recorder_did_not_write(ran: Evidence, name: str) -> None:
    finished = ran.finished(name)
    cause = None if name in ("closed", "hook") else "forged_records"
    assert finished["cause"] == cause, (finished, ran.log.decode())
    told = [one for one in ran.of("test", name) if one["record"] == "test_set"][-1]
    hook = {"hook": "pytest_runtest_makereport", "early": "pytest_runtest_logfinish"}.get(name)
    hooks = [[hook, f"{name}/conftest.py"]] if hook else []
    assert told["hooks"] == hooks


def test_a_test_that_closes_the_pipe_of_the_records_is_a_crash(ran: Evidence) -> None:
    outcomes = {"closed/test_a.py::test": "crashed", "closed/test_a.py::test_b": "passed"}
    assert ran.outcomes("closed") == outcomes
