"""Lies planted into true reports: into the model before it is written, and into the Markdown.

Every one must be found, by the rule that is there for it; the true reports have no finding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from orchestrator.domain.lint_findings import ForeignDocument
from orchestrator.domain.outcome import Outcome
from reports.document_lint.linter import lint_documents
from reports.linter import errors, lint, lint_evidence
from reports.model.values import ReportModel
from reports.registry import KINDS, model_of, render
from tests.unit.reports.builders import Jobs, cell_of, evidence_of
from tests.unit.reports.known_results import evidence_called
from tests.unit.reports.model_leaves import changed
from tests.unit.reports.planted_lies import LIES
from tests.unit.reports.stories import STORIES, local

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "templates" / "reports"
GOLDEN = ROOT / "tests" / "golden" / "reports"


@cache
def written(kind: str, name: str) -> str:
    return render(kind, evidence_called(name), format="md", templates=TEMPLATES)


@cache
def true_model(kind: str, name: str) -> ReportModel:
    cell = "gcp-l4" if (kind, name) == ("platform", "handed-in") else None
    return model_of(kind, evidence_called(name), cell=cell)


IN_THE_MODEL = [
    # name, kind, story, path, lie (...: a row is left out), rule
    ("a count off by one, with its sums", "platform", "a10g",
     ("suites", "rows", 3, "tally"), {"passed": 11, "failed": 9}, "recorded"),
    ("missing counted as skipped", "platform", "every-outcome",
     ("suites", "rows", 0, "tally"), {"missing": 0, "skipped": 5}, "recorded"),
    ("a skip inside passed", "platform", "local",
     ("suites", "rows", 0, "tally"), {"passed": 48, "skipped": 0}, "recorded"),
    ("a rate over what was collected", "platform", "local",
     ("suites", "total", "rate", "whole"), 48, "pass_rate"),
    ("a percentage rounded up to 100", "platform", "a10g",
     ("suites", "total", "rate", "percent"), 100.0, "rate"),
    ("a suite left out", "platform", "a10g", ("suites", "rows", -1), ..., "recorded"),
    ("a failed suite that passed", "platform", "a10g",
     ("suites", "rows", 3, "status", "code"), "passed", "outcome"),
    ("a failed cell that passed", "platform", "a10g", ("status", "code"), "passed", "outcome"),
    ("a timed out suite that failed", "platform", "every-outcome",
     ("suites", "rows", 2, "status", "code"), "failed", "recorded"),
    ("a failed test not listed", "platform", "a10g", ("problems",), (), "listed"),
    ("skips not listed", "platform", "local", ("skips",), (), "skips"),
    ("a degraded demo unmarked", "platform", "l4-degraded",
     ("demos", "rows", 0, "status", "degraded"), None, "degraded"),
    ("a degraded job unmarked in the summary", "summary", "release",
     ("rows", 2, "degraded"), (), "degraded"),
    ("simulated evidence unmarked", "platform", "simulated",
     ("provenance", "simulated"), False, "simulated"),
    ("simulated evidence unmarked in the summary", "summary", "simulated",
     ("rows", 0, "provenance", "simulated"), False, "simulated"),
    ("a wrong architecture", "platform", "l4-degraded",
     ("hardware", "devices", 0, "architecture"), "Ampere", "architecture"),
    ("a check that was not made", "platform", "a10g",
     ("demos", "rows", 0, "checks"), {"passed": 9}, "checks"),
    ("a demo that failed a check passes", "platform", "a10g",
     ("demos", "rows", 1, "status", "code"), "passed", "outcome"),
    ("a shorter duration", "platform", "a10g",
     ("suites", "rows", 0, "duration_s"), 7.27, "recorded"),
    ("another torch", "platform", "a10g", ("hardware", "torch"), "2.7.1+cu128", "recorded"),
    ("a smaller file", "platform", "a10g", ("files", 0, "size_bytes"), 1, "recorded"),
    ("another file's digest", "platform", "a10g", ("files", 0, "sha256"), "f" * 64, "recorded"),
    ("another cell's evidence", "platform", "a10g",
     ("footer", "evidence_sha256"), "f" * 64, "evidence"),
    ("another run's evidence", "summary", "release",
     ("footer", "evidence_sha256"), "f" * 64, "evidence"),
    ("a file that never came", "platform", "a10g", ("files", 0, "name"), "proof.txt", "recorded"),
    ("a latency that nobody measured", "platform", "a10g",
     ("metrics", 0, "rows", 0, "cells", 0, "median"), 4.0, "samples"),
    ("better samples", "platform", "a10g",
     ("metrics", 0, "rows", 0, "cells", 0, "samples"), (4.0,) * 6, "reported"),
    ("a spread of nothing", "platform", "a10g",
     ("metrics", 0, "rows", 0, "cells", 0, "low"), 4.361, "samples"),
    ("a ratio from rounded values", "summary", "release",
     ("comparisons", 0, "rows", 2, "relative"), 4.36 / 7.81, "comparison"),
    ("a comparison without its mark", "summary", "release",
     ("comparisons", 0, "rows", 2, "same_stack"), True, "comparison"),
    ("a difference that is none, unmarked", "summary", "release",
     ("comparisons", 0, "rows", 2, "overlaps"), True, "comparison"),
    ("a row of nothing in the denominator", "summary", "release",
     ("total", "cells"), ("local-cpu", "aws-a10g", "gcp-l4", "aws-mi300x"), "denominator"),
    ("a processor among the accelerators", "summary", "release",
     ("accelerators", "cells"), ("local-cpu", "aws-a10g", "gcp-l4"), "denominator"),
    ("what is outside is not named", "summary", "release", ("total", "outside"), (), "denominator"),
    ("more distinct tests", "summary", "release", ("distinct_tests",), 231, "distinct"),
    ("a platform left out", "summary", "release", ("rows", 1), ..., "recorded"),
    ("one cell more passed", "summary", "release", ("passed_cells", "part"), 3, "total"),
    ("a cost off by a cent", "platform", "a10g",
     ("money", "rows", 0, "bill", "machine_usd"), "-0.01", "cost"),
    ("a total off by a cent", "summary", "release",
     ("costs", "bill", "total_usd"), "-0.01", "cost"),
    ("fewer seconds", "platform", "a10g", ("money", "rows", 0, "billed_s"), 600, "cost"),
    ("all, with one failing", "platform", "a10g",
     ("conclusion", 0, "text"), "All 185 tests passed.", "claim"),
    ("a figure in a sentence", "platform", "a10g",
     ("conclusion", 0, "text"), "185 of 185 judged tests passed; 0 skipped; 0 missing.", "claim"),
    ("production ready", "platform", "a10g",
     ("conclusion", -2, "text"), "This release is production ready.", "claim"),
    ("a step of the timeline left out", "platform", "a10g", ("timeline", 3), ..., "timeline"),
]  # fmt: skip


def part_at(part, path):
    for step in path:
        part = part[step] if isinstance(part, tuple) else getattr(part, step)
    return part


def planted(model, path, lie):
    """The model with the lie: a leaf, some fields of a part, a row left out, or cents less."""
    part = part_at(model, path)
    if isinstance(lie, dict):
        return changed(model, path, replace(part, **lie))
    if lie is ...:
        rows = part_at(model, path[:-1])
        at = path[-1] % len(rows)
        return changed(model, path[:-1], rows[:at] + rows[at + 1 :])
    if isinstance(lie, str) and lie.startswith("-0."):
        return changed(model, path, part + type(part)(lie))
    return changed(model, path, lie)


@pytest.mark.parametrize(
    ("kind", "name", "path", "lie", "rule"),
    [pytest.param(*lie[1:], id=lie[0]) for lie in IN_THE_MODEL] + LIES,
)
def test_a_lie_in_the_model_is_found(kind, name, path, lie, rule):
    model = true_model(kind, name)
    wrong = planted(model, path, lie)
    assert wrong != model
    found = errors((*lint(wrong), *lint_evidence(wrong, evidence_called(name))))
    assert rule in {finding.rule for finding in found} | ({""} if found else set())


def test_a_test_that_is_counted_twice_is_found():
    cell, jobs = local()
    twice = replace(cell.jobs[0], counts=cell.jobs[0].counts + cell.jobs[0].counts)
    known = evidence_of((replace(cell, jobs=(twice, *cell.jobs[1:])), jobs), outcome=Outcome.PASSED)
    model = KINDS["platform"].view(known, "local-cpu")
    assert "recount" in {finding.rule for finding in errors(lint_evidence(model, known))}


def test_a_pass_without_a_test_is_found():
    jobs = Jobs().suite("moe", "MoE Tests", [], Outcome.PASSED)
    cell = cell_of(local()[0].platform, jobs, Outcome.PASSED)
    model = KINDS["platform"].view(evidence_of((cell, jobs), outcome=Outcome.PASSED), "local-cpu")
    assert "outcome" in {finding.rule for finding in errors(lint(model))}


IN_THE_TEXT = [
    # name, kind, story, what is written, what is written instead, rule
    ("a passed test more", "platform", "a10g", "| FP8 Training | 10 | 10 |",
     "| FP8 Training | 11 | 10 |", "collected"),
    ("a total off by one", "platform", "a10g", "| **Total** | **175** |", "| **Total** | **176** |",
     "total"),
    ("a failure turned into a pass", "platform", "a10g", "| 20 | 50.0% | ❌ FAILED (tests) |",
     "| 20 | 50.0% | ✅ PASSED |", "row-status"),
    ("a percentage rounded up", "platform", "a10g", "| **185** | **94.6%** |",
     "| **185** | **95.6%** |", "percent"),
    ("a percentage rounded up to 100", "summary", "release", "| 175/185 | 0 | 0/0 | 94.6% |",
     "| 175/185 | 0 | 0/0 | 100% |", "percent"),
    ("a verdict over a failure", "platform", "a10g", "**Outcome**: ❌ FAILED (tests)",
     "**Outcome**: ✅ PASSED", "status"),
    ("a demo more", "platform", "a10g", "15/16 checks | |", "16/16 checks | |", "total"),
    ("a demo that failed a check passes", "platform", "a10g",
     "| FP8 Native Demo | ❌ FAILED (checks) | 7/8", "| FP8 Native Demo | ✅ PASSED | 7/8",
     "row-status"),
    ("more than there are", "summary", "release", "| 175/185 |", "| 195/185 |", "fraction"),
    ("the total with a platform that is not there", "summary", "release", "**269/279**",
     "**269/327**", "denominator"),
    ("the accelerators with the processor", "summary", "release", "**223/233**", "**269/279**",
     "total"),
    ("a cost off by a cent", "platform", "a10g", "| $1.006 | $0.1783 |", "| $1.006 | $0.1683 |",
     "cost"),
    ("a total of costs off by a cent", "cost", "release", "**$0.3124**", "**$0.3024**", "total"),
    ("an hour's price", "platform", "a10g", "| 638 s | $1.006 |", "| 638 s | $0.50 |", "cost"),
    ("a wrong architecture", "platform", "a10g", "8.6 (Ampere)", "8.6 (Hopper)", "architecture"),
    ("the other board's architecture", "platform", "l4-degraded", "8.9 (Ada Lovelace)",
     "8.9 (Ampere)", "architecture"),
    ("another capability", "platform", "l4-degraded", "**Compute Capability**: 8.9 (Ada Lovelace)",
     "**Compute Capability**: 8.6 (Ampere)", "architecture"),
    ("another instance", "platform", "a10g", "**Instance**: g5.xlarge",
     "**Instance**: g2-standard-4", "instance"),
    ("another torch", "platform", "a10g", "**PyTorch Version**: 2.7.0+cu128",
     "**PyTorch Version**: 2.7.1+cu128", "environment"),
    ("a board's memory in two ways", "platform", "a10g", "Memory: 23,028 MiB (24.15 GB)",
     "Memory: 23 GB", "memory"),
    ("a throughput of more", "platform", "a10g", "| 512 | 4.361 (4.317 – 4.388) | 939,267",
     "| 512 | 4.361 (4.317 – 4.388) | 999,267", "evidence-metric"),
    ("a latency of less", "platform", "a10g", "| 512 | 4.361 (", "| 512 | 4.163 (",
     "evidence-metric"),
    ("a degraded demo unmarked", "platform", "l4-degraded", "| ✅ PASSED (degraded) | 9/9",
     "| ✅ PASSED | 9/9", "degraded"),
    ("all, with some failing", "platform", "a10g", "- 175 of 185 judged tests passed;",
     "- All 185 tests pass;", "claim"),
    ("production ready", "platform", "a10g", "- This is accelerator evidence:",
     "- This is production-ready:", "readiness"),
    ("fully, with a failure", "summary", "release", "- 1 job ran degraded.",
     "- FP8 Native fully functional on all platforms.", "claim"),
    ("ratios without samples", "summary", "local", " (n=3)", "", "spread"),
    ("a suite's count", "platform", "a10g", "| MoE Tests | 48 | 0 | 0 | 0 | 0/0 | 0/0 | 48 |",
     "| MoE Tests | 47 | 0 | 0 | 0 | 0/0 | 0/0 | 47 |", "evidence-count"),
    ("a skip that is not told", "platform", "local", "| 46 | 0 | 0 | 2 |", "| 46 | 0 | 0 | 0 |",
     "collected"),
    ("a count of classes", "backend", "a10g", "**Test Classes:** 1", "**Test Classes:** 2",
     "count"),
    ("a row of results that passed", "results", "a10g", "**3/4**", "**4/4**", "total"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "old", "new", "rule"),
    [lie[1:] for lie in IN_THE_TEXT],
    ids=[lie[0] for lie in IN_THE_TEXT],
)
def test_a_lie_in_the_text_is_found(kind, name, old, new, rule):
    text = written(kind, name)
    assert old in text
    lie = ForeignDocument("report.md", text.replace(old, new, 1))
    found = lint_documents([lie], evidence_called(name))
    assert rule in {finding.rule for finding in found}


TRUE = [
    *((kind.name, name) for name in STORIES for kind in KINDS.values() if kind.name != "compare"),
    *((kind.name, name) for name in ("release", "eight") for kind in KINDS.values()
      if not kind.per_cell and kind.name != "compare"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), TRUE)
def test_the_true_reports_have_no_finding(kind, name):
    document = ForeignDocument("report.md", written(kind, name))
    assert lint_documents([document], evidence_called(name)) == ()
    assert lint_documents([document]) == ()


SAID_BY_ARTIFACTS = {
    # what the seeds' own demos and benchmarks say of themselves, printed as they say it
    ("seed-000-results.md", "row-status"),  # a check that passed with the value 12/14
    ("seed-000-results.md", "status"),
    ("seed-003.md", "fp8"),  # "H100 required"
    ("seed-004.md", "architecture"),  # "L4 is Ampere"
    ("seed-004.md", "flash-attention-3"),
    ("seed-004.md", "fp8"),
}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.md")), ids=lambda path: path.name)
def test_the_golden_reports_have_no_finding_of_their_own(path):
    found = lint_documents([ForeignDocument(path.name, path.read_text("utf-8"))])
    assert {(f.document, f.rule) for f in found} <= SAID_BY_ARTIFACTS


def test_what_a_person_signed_is_left_to_the_rules_about_statements():
    signed = "All platforms pass.\n\n*Written by A. Person, 2026-01-19.*\n\n"
    footer = "*Run r-1 · evidence sha256 — (see) · template summary 2*\n"
    text = f"# R\n\n## Conclusion\n\n{signed}"
    ours = lint_documents([ForeignDocument("a.md", text + footer)])
    theirs = lint_documents([ForeignDocument("a.md", text)])
    assert [f.rule for f in ours] == []
    assert [f.rule for f in theirs] == ["claim"]
