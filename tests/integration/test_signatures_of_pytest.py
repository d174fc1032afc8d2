"""Signatures of what pytest itself writes, in each of its styles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.application.ports.result_parsers import HEAD_BYTES, Artifact
from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failure_signature import Signature, signature_of
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedTest

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

def test_in_colours():
    raise ValueError("\\x1b[31mred\\x1b[0m and \\x00")

@pytest.fixture
def breaks_at_its_end():
    yield
    raise OSError("cannot be removed")

def test_twice(breaks_at_its_end):
    assert 1 == 2
"""
CHECKS = """\
def test_plain():
    assert 1 == 2

class TestChecks:
    def test_inside(self):
        assert 1 == 2
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "library").mkdir()
    (folder / "library" / "engine.py").write_text(LIBRARY)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_engine.py").write_text(TESTS)
    (folder / "Checks").mkdir()
    (folder / "Checks" / "check_more.py").write_text(CHECKS)
    settings = "[pytest]\npythonpath = .\npython_files = test_*.py check_*.py\n"
    (folder / "pytest.ini").write_text(settings)
    return folder


def ran(project: Path, style: str) -> dict[str, Signature]:
    log = project / f"{style}.jsonl"
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--tb={style}"]
    written = (f"--report-log={log}", f"--junitxml={project / style}.xml")
    done = subprocess.run([*pytest_, *written], cwd=project, capture_output=True)
    assert done.returncode == 1, done.stdout
    found: dict[str, Signature] = {}
    for line in log.read_text("utf-8").splitlines():
        report = json.loads(line)
        if report.get("outcome") == "failed" and report["$report_type"] == "TestReport":
            name = report["nodeid"].rpartition("::")[2]
            signature = signature_of(fact(report))
            assert signature is not None
            found.setdefault(name, signature)  # of the call, before the one of its teardown
    return found


def ingested(file: Path) -> dict[str, Signature]:
    head = file.read_bytes()[:HEAD_BYTES]
    artifact = Artifact(file.name, file, file.stat().st_size, head)
    found: dict[str, Signature] = {}
    for item in JUnitXml().read(artifact):
        if isinstance(item, ParsedTest):
            words = {"reason": item.reason, "message": item.message, "text": item.text}
            signature = signature_of(TestFact("unit", item.nodeid, item.outcome, True, **words))
            if signature is not None:
                found[item.nodeid.rpartition("::")[2]] = signature
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
    "test_one": ("EngineError", "library.engine.recipe", FailureClass.PRODUCT),
    "test_wrapped": ("RuntimeError", "library.engine.wrap", FailureClass.PRODUCT),
    "test_expectation": (
        "AssertionError",
        "tests/test_engine.py::TestEngine::test_expectation",
        FailureClass.PRODUCT,
    ),
    "test_with_fixture": ("KeyError", "tests.test_engine.broken", FailureClass.TEST),
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
    assert found["test_in_colours"].message == "red and"
    assert ingested(project / f"{style}.xml") == found
