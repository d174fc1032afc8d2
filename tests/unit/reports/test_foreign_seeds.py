"""The owner's five reports: every contradiction that can be found in them is found.

The golden files hold all findings; after a change that is meant, run with `--update-golden` and
read the difference. The numbers are those of the list in docs/lint.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.domain.linted import DocumentFinding, ForeignDocument
from reports.foreign.linter import lint_documents
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


ALONE = [
    (1, "004", "skip", 12, "66/66 passed: 65 are listed as passed"),
    (1, "004", "skip", 61, "TestNVIDIAErrorPaths is PASSED throughout"),
    (1, "004", "skip", 317, "'all 66 tests pass' is false"),
    (2, "004", "one-list", 52, "GCP Status and AWS Status stand for 66 tests"),
    (3, "004", "architecture", 271, "L4 is Ada Lovelace (compute capability 8.9)"),
    (3, "004", "architecture", 269, "Architecture detection: ampere"),
    (3, "004", "fp8", 271, "has FP8 tensor cores"),
    (3, "004", "fp8", 310, "has FP8 tensor cores"),
    (3, "003", "fp8", 50, "H100 required"),
    (4, "004", "unit-of-count", 13, "at most 15 are printed"),
    (5, "004", "difference", 241, "0.2956 and 0.2785"),
    (5, "004", "difference", 241, "give 5.8%"),
    (5, "004", "similar", 244, "9% as printed, 2.2% unrounded"),
    (6, "004", "stack", 239, "CUDA versions (L4: 12.8, A10G: 13.0)"),
    (6, "000", "stack", 28, "2.9.1+cu130, L4: 2.7.1+cu128"),
    (6, "001", "spread", 50, "1.79x"),
    (6, "004", "spread", 241, "25% faster"),
    (6, "004", "flash-attention-3", 183, "needs Hopper"),
    (7, "004", "cold-start", 258, "375.16ms"),
    (7, "004", "derived-rate", 264, "time x rate is 6,402"),
    (8, "003", "memory", 80, "24GB"),
    (8, "000", "memory-unit", 10, "23.7 GB"),
    (9, "002", "denominator", 21, "437/449 = 97.3%"),
    (9, "002", "denominator", 21, "AMD MI300X"),
    (9, "002", "denominator", 21, "counts again"),
    (9, "002", "claim", 11, "all major"),
    (9, "002", "claim", 94, "across all platforms"),
    (10, "002", "skips-unsaid", 15, "1,055/1,055"),
    (11, "002", "stand-in", 48, "41/41 from elsewhere"),
    (12, "002", "claim-scope", 95, "MoE is claimed on TPU"),
    (13, "002", "dismissal", 86, "Minor"),
    (13, "002", "dismissal", 87, "Does not affect"),
    (15, "002", "same-set", 35, "15/16 here and of 25 elsewhere"),
    (18, "000", "missing", 34, "Baseline inference of GCP L4"),
    (18, "000", "status", 55, "12/14"),
    (18, "000", "spread", 41, "1.01x"),
    (18, "000", "slower", 67, "+18.0%"),
    (18, "000", "slower", 67, "+20.4%"),
    (18, "000", "slower", 65, "loss"),
    (18, "000", "tolerance", 80, "3.55e-04"),
    (19, "000", "cost", 86, "starting and stopping"),
    (19, "000", "cost", 87, "$0.96 an hour"),
    (20, "004", "price", 309, "no date, no region"),
    (23, "000", "encoding", 1, "wrong encoding"),
    (23, "004", "encoding", 157, "48 lines"),
    (0, "002", "status", 19, "VALIDATION COMPLETE"),
    (0, "002", "ratio", 60, "1.79 for 512d"),
    (0, "004", "readiness", 14, "PRODUCTION READY"),
    (0, "003", "status", 50, "Limited"),
]  # fmt: skip
"""Number in the list (0: beyond it), seed, rule, line, words."""

TOGETHER = [
    (6, "001", "stack", 48, "by the other documents"),
    (8, "004", "memory", 311, "23.7 GB (000.md:10), 24GB (001.md:5), 23GB (004.md:311)"),
    (15, "001", "not-run-unsaid", 31, "FlexAttention Demo ran in 003.md"),
    (19, "000", "cost", 87, "(the price of 004.md) = $0.058, not ~$0.08"),
    (20, "001", "region", 3, "us-east-2 (004.md:39)"),
    (23, "000", "name", 1, "KernelPyTorch"),
]  # fmt: skip

AGAINST_LOGS = [
    (1, "004", "evidence-test", 139, "SKIPPED here, and PASSED in the results"),
    (16, "003", "degraded", 107, "Falling back to standard attention"),
    (16, "003", "degraded", 30, "FlexAttention Demo is told as passed"),
    (16, "003", "evidence-slower", 29, "times slower"),
    (17, "003", "version-stamp", 1, "KernelPyTorch 0.4.5"),
    (17, "003", "version-stamp", 1, "KernelPyTorch 0.4.4"),
]  # fmt: skip


def has(found, document, rule, line, words):
    return any(
        (f.document, f.rule, f.line) == (f"{document}.md", rule, line) and words in f.message
        for f in found
    )


@pytest.mark.parametrize(("number", "name", "rule", "line", "words"), ALONE)
def test_a_contradiction_within_a_seed_is_found(number, name, rule, line, words):
    assert has(lint_documents([seed(name)]), name, rule, line, words)


@pytest.mark.parametrize(("number", "name", "rule", "line", "words"), TOGETHER)
def test_a_contradiction_between_seeds_is_found(number, name, rule, line, words):
    assert has(lint_documents(every()), name, rule, line, words)
    assert not has(lint_documents([seed(name)]), name, rule, line, words)


@pytest.mark.parametrize(("number", "name", "rule", "line", "words"), AGAINST_LOGS)
def test_a_contradiction_of_the_logs_is_found(number, name, rule, line, words):
    assert has(lint_documents([seed(name)], l4_run()), name, rule, line, words)


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
