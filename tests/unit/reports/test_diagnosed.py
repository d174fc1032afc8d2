"""Who broke it, in the reports: what was tried beside the failures, and no figure changed by it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.domain.retests import RetestKind
from orchestrator.domain.root_cause import DiagnosedTest, RetestTally, RootCause
from orchestrator.domain.run_record import Evidence
from reports.registry import render
from tests.unit.reports.stories import release, story
from tests.unit.reports.test_golden import compare

BASELINE = "torchbridge 0.4.5"


def found(
    nodeid: str,
    answer: RootCause,
    *,
    cell: str = "aws-a10g",
    why: str = "",
    changed: str = BASELINE,
    word: str = "passed",
) -> DiagnosedTest:
    again = (
        RetestTally(kind=RetestKind.RERUN, changed="", whole=False, outcomes=("failed",) * 6),
        RetestTally(kind=RetestKind.BASELINE, changed=changed, whole=False, outcomes=(word,) * 4),
    )
    sentence = why or f"With the baseline {BASELINE} it failed 0 of 4 times."
    return DiagnosedTest(
        cell=cell, job="moe", nodeid=nodeid, answer=answer, sentence=sentence,
        evidence=("It fails every time.", sentence), again=again,
    )  # fmt: skip


def with_answers(evidence: Evidence, *answers: DiagnosedTest) -> Evidence:
    return replace(evidence, record=replace(evidence.record, diagnosed=answers))


def diagnosed() -> Evidence:
    why = "Since the last green run r1: device driver 550 -> 570."
    return with_answers(
        story("a10g"),
        found("suites/test_moe.py::test_routing", RootCause.SUBJECT),
        found("", RootCause.IMAGE_OR_DRIVER, why=why, word="failed"),
    )


@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_the_section_is_the_one_that_was_read(kind, templates, golden, update_golden):
    text = render(kind, diagnosed(), format="md", templates=templates)
    compare(golden / f"{kind}-diagnosed.md", text, update_golden)


@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_nothing_else_changes(kind, templates):
    with_it = render(kind, diagnosed(), format="md", templates=templates).splitlines()
    without = render(kind, story("a10g"), format="md", templates=templates).splitlines()
    begin = with_it.index("### Root cause")
    end = next(n for n, line in enumerate(with_it) if line.startswith("Failing tests ran again"))
    kept = [line for line in (*with_it[:begin], *with_it[end + 1 :]) if line]
    assert kept == [line for line in without if line]


def test_each_cells_report_has_its_own(templates):
    other = found("suites/test_moe.py::test_other", RootCause.FLAKY, cell="gcp-l4")
    told = with_answers(release(), *diagnosed().record.diagnosed, other)
    model = json.loads(render("summary", told, format="json", templates=templates))
    assert [row["answer"] for row in model["blame"]] == ["subject", "image_or_driver", "flaky"]
    assert model["blame"][0]["again"][0]["outcomes"] == ["failed"] * 6
