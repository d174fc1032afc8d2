"""The owner's five reports: every contradiction that can be found in them is found.

The golden files hold all findings; after a change that is meant, run with `--update-golden` and
read the difference. The numbers are those of the list in docs/reference/lint.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.domain.lint_findings import DocumentFinding, ForeignDocument
from reports.document_lint.linter import lint_documents
from tests.unit.reports.real_logs import l4_run

SEEDS = Path(__file__).resolve().parents[2] / "golden" / "seeds"
NAMES = ("000", "001", "002", "003", "004")


def seed(name: str) -> ForeignDocument:
    return ForeignDocument(f"{name}.md", (SEEDS / f"{name}.md").read_text("utf-8"))


def every() -> list[ForeignDocument]:
    return [seed(name) for name in NAMES]


def written(found: tuple[DocumentFinding, ...]) -> str:
    return "".join(f"{f.document}:{f.line}: {f.level}: {f.rule}: {f.message}\n" for f in found)


def compare(path: Path, text: str, update: bool) -> None:
    if update:
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("name", NAMES)
def test_findings_of_one_seed(name, update_golden):
    compare(SEEDS / f"{name}.findings", written(lint_documents([seed(name)])), update_golden)


def test_findings_of_all_together(update_golden):
    compare(SEEDS / "together.findings", written(lint_documents(every())), update_golden)


@pytest.mark.parametrize("name", ["003", "004"])
def test_findings_against_the_real_logs(name, update_golden):
    found = lint_documents([seed(name)], l4_run())
    compare(SEEDS / f"{name}.evidence.findings", written(found), update_golden)


"""Number in the list (0: beyond it), seed, rule, line, words."""


def test_true_counts_are_not_held_against_a_document():
    wrong = {f.rule for f in lint_documents([seed("003")], l4_run())}
    assert not wrong & {"evidence-count", "evidence-demo", "evidence-metric", "environment"}


def test_a_report_of_another_board_is_not_held_against_these_logs():
    found = lint_documents([seed("001")], l4_run())
    assert not [f for f in found if f.rule.startswith("evidence") or f.rule == "degraded"]


@pytest.mark.parametrize(
    ("old", "new", "rule", "words"),
    [
        ("Backend | 66 | 66 |", "Backend | 65 | 66 |", "evidence-count", "65 passed"),
        ("Tests | 48 | 48 |", "Tests | 48 | 49 |", "evidence-count", "48 were collected"),
        ("8/8 demonstrations", "7/8 demonstrations", "evidence-demo", "8/8 in the results"),
        ("525.7K tok/s", "535.7K tok/s", "evidence-metric", "525700"),
        ("7.79ms", "7.97ms", "evidence-metric", "0.00779"),
        ("2.7.1+cu128", "2.7.0+cu128", "environment", "2.7.1+cu128 in the results"),
    ],
)  # fmt: skip
def test_a_figure_changed_in_a_true_document_is_found_in_the_logs(old, new, rule, words):
    text = seed("003").text
    assert old in text
    found = lint_documents([ForeignDocument("003.md", text.replace(old, new, 1))], l4_run())
    assert any(f.rule == rule and words in f.message for f in found)
