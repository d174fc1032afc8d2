"""The built-in payload offers every test that the validation of version 0.4.6 named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "golden" / "logs"
NODE = re.compile(r"^tests/(\S+::\S.*?) (?:PASSED|FAILED|SKIPPED)", re.MULTILINE)


@pytest.mark.parametrize(("log", "suite", "count"), [("moe_tests.txt", "test_moe.py", 48)])
def test_the_suite_has_exactly_the_names_of_the_log(log, suite, count):
    named = NODE.findall((LOGS / log).read_text("utf-8"))
    assert len(named) == count
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qq", f"suites/{suite}"],
        cwd=ROOT / "payload",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    offered = [x.removeprefix("suites/") for x in collected.splitlines() if "::" in x]
    assert offered == named
