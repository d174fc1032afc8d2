"""Whole reports, compared with files that a person has read.

After a change that is meant: `pytest tests/unit/reports --update-golden`, and read the difference.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.domain.commit import Commit
from reports.registry import render
from tests.unit.reports.stories import STORIES, release, story


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
