"""Whole reports, compared with files that a person has read.

After a change that is meant: `pytest tests/unit/reports --update-golden`, and read the difference.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.commit import Commit
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import Evidence
from reports.registry import render
from tests.prose import empty_sections, faults
from tests.unit.reports.builders import Jobs, T, cell_of, checks, evidence_of, results_of
from tests.unit.reports.stories import STORIES, eight, l4, release, story


def compare(path: Path, text: str, update: bool) -> None:
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("name", STORIES)
def test_platform(name, templates, golden, update_golden):
    text = render("platform", story(name), format="md", templates=templates)
    compare(golden / f"platform-{name}.md", text, update_golden)


@pytest.mark.parametrize("name", ["local", "built-in", "running", "not-available"])
def test_summary_of_one_cell(name, templates, golden, update_golden):
    text = render("summary", story(name), format="md", templates=templates)
    compare(golden / f"summary-{name}.md", text, update_golden)


def test_summary_of_a_release(templates, golden, update_golden):
    text = render("summary", release(), format="md", templates=templates)
    compare(golden / "summary-release.md", text, update_golden)


def test_comment_on_a_release(templates, golden, update_golden):
    text = render("comment", of_commit(release()), format="md", templates=templates)
    compare(golden / "comment-release.md", text, update_golden)


def of_commit(evidence):
    """The same run, of a known commit."""
    commit = Commit(sha="1f0c2d9a41b2" + "0" * 28, branch="topic", author="@ann")
    record = evidence.record
    return replace(evidence, record=replace(record, run=replace(record.run, commit=commit)))


@pytest.mark.parametrize("form", ["json", "html"])
def test_other_forms(form, templates, golden, update_golden):
    text = render("platform", story("l4-degraded"), format=form, templates=templates)
    compare(golden / f"platform-l4-degraded.{form}", text, update_golden)


def test_a_run_that_was_promised_no_accelerator_speaks_of_none(templates):
    alone = story("local")
    [cell] = alone.record.cells
    assert "ccelerator" not in render("summary", alone, format="md", templates=templates)
    promised = replace(cell, platform=replace(cell.platform, accelerator_type="v5litepod-1"))
    record = replace(alone.record, cells=(promised,))
    text = render("summary", replace(alone, record=record), format="md", templates=templates)
    assert "| Accelerator |" in text
    assert "accelerators only" in text


def counting(n: int) -> Evidence:
    """A run with so many tests of every outcome, in each of two jobs, and as many checks."""
    outcomes = [(f"t.py::{one.word}_{i}", one) for one in T for i in range(n)]
    jobs = Jobs()
    for name in ("unit", "slow"):
        tests = results_of(name, outcomes, message="E   ValueError: boom", reason="a reason")
        why = "tests" if n else "no_tests"
        jobs.suite(name, name.title(), tests, Outcome.FAILED, why, detail=f"{n} failed")
    bad = dict.fromkeys(range(1, n + 1), "it is off")
    shown = checks("demo", 2 * n, failed=bad)
    jobs.command("demo", "demo", "Demo", Outcome.FAILED, reason="checks", checks=shown)
    cell = cell_of(l4()[0].platform, jobs, Outcome.FAILED)
    return evidence_of((cell, jobs), outcome=Outcome.FAILED)


@pytest.mark.parametrize("kind", ["summary", "platform", "results", "backend", "cost", "comment"])
@pytest.mark.parametrize(
    "evidence",
    [lambda: counting(0), lambda: counting(1), lambda: counting(2), release, eight]
    + [lambda name=name: story(name) for name in STORIES],
)
def test_a_report_is_written_for_people(kind, evidence, templates):
    """No ``1 tests``, no raw time or code, no heading above nothing, no table without rows."""
    shown = evidence()
    if kind == "platform" and len(shown.record.cells) > 1:
        pytest.skip("a platform's report is of one cell")
    text = render(kind, shown, format="md", templates=templates)
    said = re.sub(r"`[^`\n]*`|```.*?```", "", text, flags=re.DOTALL)
    assert [*empty_sections(text), *faults(said)] == []
