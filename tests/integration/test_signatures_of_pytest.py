"""Signatures of what pytest itself writes, in each of its styles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failure_signature import Signature, signature_of
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.outcome import TestOutcome

LIBRARY = """\
class EngineError(ValueError):
    pass

def recipe(margin):
    if margin:
        raise EngineError(f"margin {margin} on cuda:{margin} at {id(margin):#x}")

def wrap(margin):
    try:
        recipe(margin)
    except ValueError as error:
        raise RuntimeError("no engine") from error
"""
TESTS = """\
import pytest
from library import engine

class TestEngine:
    def test_one(self):
        engine.recipe(1)

    @pytest.mark.parametrize("margin", [2, 3])
    def test_many(self, margin):
        engine.recipe(margin)

    def test_wrapped(self):
        engine.wrap(4)

    def test_expectation(self):
        found = [1, 2]
        assert found == [1, 3]

@pytest.fixture
def broken():
    raise KeyError("setting")

def test_with_fixture(broken):
    pass

def test_did_not_raise():
    with pytest.raises(ValueError):
        pass

def test_deep_in_a_library():
    import json
    json.loads("{")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "library").mkdir()
    (folder / "library" / "engine.py").write_text(LIBRARY)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_engine.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return folder


def ran(project: Path, style: str) -> dict[str, Signature]:
    log = project / f"{style}.jsonl"
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--tb={style}"]
    done = subprocess.run([*pytest_, f"--report-log={log}"], cwd=project, capture_output=True)
    assert done.returncode == 1, done.stdout
    found: dict[str, Signature] = {}
    for line in log.read_text("utf-8").splitlines():
        report = json.loads(line)
        if report.get("outcome") == "failed" and report["$report_type"] == "TestReport":
            name = report["nodeid"].rpartition("::")[2]
            signature = signature_of(fact(report))
            assert signature is not None
            found[name] = signature
    return found


def fact(report: dict) -> TestFact:
    """As the reader of such logs makes it: the text that a person would see."""
    longrepr = report["longrepr"]
    text = longrepr if isinstance(longrepr, str) else rendered(longrepr)
    return TestFact("unit", report["nodeid"], TestOutcome.FAILED, True, text=text)


def rendered(longrepr: dict) -> str:
    lines: list[str] = []
    for entries, _, chained in longrepr.get("chain") or [(longrepr["reprtraceback"], None, None)]:
        for entry in entries["reprentries"]:
            data = entry["data"]
            place = data.get("reprfileloc")
            short = data.get("style") == "short"
            where = f"{place['path']}:{place['lineno']}: {place['message']}" if place else ""
            lines += [where, *data["lines"]] if short else [*data["lines"], "", where]
            lines.append("_ " * 40)
        lines += [chained] if chained else []
    return "\n".join(lines)


EXPECTED = {
    "test_one": ("EngineError", "engine.recipe", FailureClass.PRODUCT),
    "test_wrapped": ("RuntimeError", "engine.wrap", FailureClass.PRODUCT),
    "test_expectation": (
        "AssertionError",
        "tests/test_engine.py::TestEngine::test_expectation",
        FailureClass.PRODUCT,
    ),
    "test_with_fixture": ("KeyError", "test_engine.broken", FailureClass.TEST),
    "test_did_not_raise": (
        "Failed",
        "tests/test_engine.py::test_did_not_raise",
        FailureClass.PRODUCT,
    ),
    "test_deep_in_a_library": (
        "JSONDecodeError",
        "tests/test_engine.py::test_deep_in_a_library",
        FailureClass.TEST,
    ),
}


@pytest.mark.parametrize("style", ["auto", "long", "short", "native"])
def test_every_style_has_the_same_signatures(project: Path, style: str) -> None:
    found = ran(project, style)
    told = {name: (found[name].exception, found[name].frame, found[name].kind) for name in EXPECTED}
    assert told == EXPECTED
    assert found["test_one"].message == "margin <n> on cuda:<n> at <addr>"
    assert len({found[name].id for name in ("test_one", "test_many[2]", "test_many[3]")}) == 1
