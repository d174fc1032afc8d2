"""Texts without results whose last line tells of a failed step."""

from __future__ import annotations

import pytest

from orchestrator.adapters.result_parsers.failed_step import FailedStep
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.outcome import TestOutcome as Result
from orchestrator.domain.parsed_results import ParsedEnd
from tests.unit.domain.assembly_cases import cell_of, result_facts, text
from tests.unit.result_parsers.pytest_logs import told, written


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("console.txt", "some text\nERROR: Job failed: exit code 1\n"),
        ("o.txt", "Process completed with exit code 1.\n"),
        ("o.log", "make: *** [Makefile:3: test] Error 1\n\n"),
        ("exit_code.txt", "1\n"),
        ("pytest.rc", "139"),
    ],
)
def test_a_failed_step_is_a_failed_job(tmp_path, name, content):
    artifact = written(tmp_path, content, name)
    dialect, _ = FileDialects().best(artifact)
    assert dialect.name == "failed-step"
    assert told(dialect, artifact).end.exit_code == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("console.txt", "ERROR: Job failed: exit code 1\nretried, done\n"),
        ("exit_code.txt", "0\n"),
        ("count.txt", "1\n"),
        ("notes.md", "exit code: 1\n"),
        ("blob.bin", b"\0\nexit code: 1\n"),
        ("server.log", "listening\n"),
    ],
)
def test_another_text_is_none(tmp_path, name, content):
    assert FailedStep().match(written(tmp_path, content, name)) == 0.0


def test_it_fails_beside_green_results():
    green = text("r.xml", *result_facts("test_a.py", [Result.PASSED]), ParsedEnd(0))
    cell = cell_of(green, text("console.txt", ParsedEnd(1, detail="exit code 1")))
    assert cell.verdict("console") is Outcome.FAILED
