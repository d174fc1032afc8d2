"""Rules about foreign reports, one small document each: what they find, and what they let be."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.accelerators import INSTANCE_DEVICES
from orchestrator.domain.catalogue import PLATFORMS
from orchestrator.domain.lint_findings import LEVELS, ForeignDocument
from reports.document_lint.linter import ACROSS, EVIDENCE, MOST, RULES, lint_documents
from reports.document_lint.parsing import fractions, only, percents, quantities, read
from reports.document_lint.rules.hardware import BOARDS, boards_in
from tests.unit.reports.real_logs import l4_run

ROOT = Path(__file__).resolve().parents[3]
SEEDS = ROOT / "tests" / "golden" / "seeds"
SUITES = "| Test Suite | Passed | Total | Status |\n|---|---|---|---|\n"
PLATFORM_ROWS = "| Platform | Instance | GPU | Tests Passed |\n|---|---|---|---|\n"
COSTS = "| Instance | Duration | Price per hour | Cost |\n|---|---|---|---|\n"
RATES = "| Batch | Seq Len | Time | Throughput |\n|---|---|---|---|\n"
COMPARED = "| Metric | GCP L4 | AWS A10G | Difference |\n|---|---|---|---|\n"
STACKS = "| Platform | PyTorch |\n|---|---|\n| A10G | 2.7.0 |\n| L4 | 2.7.1 |\n\n"
BLOCK = "```\n{}\n```\n"

FOUND = [
    ("total", SUITES + "| A | 1 | 2 | PARTIAL |\n| **Total** | **2** | **2** | |\n", 4),
    ("total", "| Demo | Result |\n|---|---|\n| A | PASS |\n| B | FAIL |\n| Total | 2/2 |\n", 5),
    ("percent", SUITES + "| A | 99 | 100 | 100% |\n", 3),
    ("percent", "- Tests: 175/185 (95.6%)\n", 1),
    ("fraction", "- Tests: 67/66 passed\n", 1),
    ("row-status", SUITES + "| A | 1 | 2 | ✅ PASS |\n", 3),
    ("status", "# R\n\n**Status**: ALL PASS\n\n- Diagnostics: 12/14 passed\n", 5),
    ("status", "# R\n\n**Status**: ✅ COMPLETE\n\n" + SUITES + "| A | 1 | 1 | ⚠️ PARTIAL |\n", 7),
    ("missing", "**Status**: PASS\n\n| M | AWS | GCP |\n|---|---|---|\n| t | 1 ms | -- |\n", 5),
    ("skip", "- `test_a` - PASSED\n- `test_b` - SKIPPED\n\nAll 2 tests pass\n", 4),
    ("count", "#### TestA (3 tests)\n- `test_a` - PASSED\n- `test_b` - PASSED\n", 1),
    ("count", "**Total Tests:** 3\n\n- `test_a` - PASSED\n- `test_b` - PASSED\n", 1),
    ("denominator", PLATFORM_ROWS + "| Local | Mac | CPU | 9/9 |\n| AWS | g5.xlarge | NVIDIA A10G "
                    "| 1/2 |\n\nTotal validated: 10/11 tests\n", 6),
    ("denominator", PLATFORM_ROWS + "| AWS | g5.xlarge | NVIDIA A10G | 1/2 |\n\nTotal: 2/2 tests\n",
     5),
    ("claim", "Every feature fully works\n", 1),
    ("claim", SUITES + "| FP8 Training | 1 | 2 | PARTIAL |\n\nAll FP8 Training tests passed\n", 5),
    ("readiness", "The backend is production-ready.\n", 1),
    ("expectation", "Benchmarks are meeting expectations.\n", 1),
    ("dismissal", "- Minor mismatch, does not affect core functionality\n", 1),
    ("ratio", "| C | A10G | L4 | Ratio |\n|---|---|---|---|\n| a | 940.8K | 525.7K | 1.9x |\n", 3),
    ("difference", COMPARED + "| t | 1.00 ms | 2.00 ms | GCP 40% faster |\n", 3),
    ("difference", COMPARED + "| t | 1.00 ms | 2.00 ms | AWS 50% faster |\n", 3),
    ("similar", COMPARED + "| t | 1.00 ms | 1.20 ms | Similar |\n", 3),
    ("spread", "A10G is 1.8x faster\n", 1),
    ("slower", "| Metric | AWS |\n|---|---|\n| Baseline time | 1.00 ms |\n| Our time | 1.20 ms |\n",
     4),
    ("throughput", RATES + "| 32 | 128 | 4.35ms | 990.8K tok/s |\n", 3),
    ("cold-start", BLOCK.format("a: 0.2 ms\nb: 0.3 ms\nc: 0.2 ms\nd: 300 ms"), 5),
    ("derived-rate", BLOCK.format("a: 14.14ms (452,734 samples/sec)\n"
                                  "b: 14.11ms (453,453 samples/sec)\n"
                                  "c: 14.04ms (455,974 samples/sec)"), 2),
    ("unit-of-count", "| M | AWS |\n|---|---|\n| Benchmarks | 1300/1300 |\n\n"
                      + BLOCK.format("a: 0.2 ms"), 3),
    ("tolerance", "- CUDA: PASS (max_diff=3.55e-04)\n", 1),
    ("cost", COSTS + "| a | 3600 s | $1.000 | $1.01 |\n", 3),
    ("cost", COSTS + "| a | 3600 s | $1.000 | $0.99 |\n", 3),
    ("price", "- L4 is cheaper (~$0.70/hr)\n", 1),
    ("architecture", "The L4 is Ampere\n", 1),
    ("architecture", "**Compute Cap**: 8.9 (Hopper)\n", 1),
    ("architecture", "# NVIDIA L4 report\n\n**CUDA Compute**: 8.6\n", 3),
    ("fp8", "# NVIDIA L4 report\n\n- FP8 enabled: False\n", 3),
    ("flash-attention-3", "# NVIDIA A10G\n\nFlashAttention-3 ran well\n", 3),
    ("instance", "| Instance | GPU |\n|---|---|\n| g6e.xlarge | NVIDIA A10G |\n", 3),
    ("memory", "# NVIDIA L4\n\n**GPU**: NVIDIA L4 (24GB)\n\n" + BLOCK.format("Memory: 23GB"), 6),
    ("memory-unit", "# NVIDIA L4\n\n**GPU Memory**: 23.7 GB\n", 3),
    ("version-stamp", "Thing v1.2.3 ran\n\nThing v1.2.4 ran\n", 3),
    ("encoding", "# A â€” B\n", 1),
    ("stand-in", "## MI300X\n- Not available\n- Local validation passed (41/41 tests)\n", 3),
    ("stack", STACKS + "| Metric | A10G | L4 |\n|---|---|---|\n| t | 1 ms | 2 ms |\n", 6),
]  # fmt: skip


def lint(text, *more):
    documents = [ForeignDocument("a.md", text), *more]
    return lint_documents(documents)


@pytest.mark.parametrize(("rule", "text", "line"), FOUND)
def test_a_rule_finds_what_it_is_for(rule, text, line):
    assert (rule, line) in {(finding.rule, finding.line) for finding in lint(text)}


LET_BE = [
    ("total", SUITES + "| A | 1 | 1 | PASS |\n| B | 2 | 2 | PASS |\n| **Total** | 3 | 3 | |\n"),
    ("total", "| A | Cost |\n|---|---|\n| a | $0.1783 |\n| b | $0.0040 |\n| Total | $0.18 |\n"),
    ("percent", "- Tests: 175/185 (94.6%)\n- 77/79 (97.5%)\n"),
    ("fraction", "2026/01/19 and v1/v2, 3/2 of the memory\n"),
    ("status", "# R\n\n**Status**: ❌ FAIL\n\n- Diagnostics: 12/14 passed\n"),
    ("missing", "**Status**: PASS\n\n| M | AWS |\n|---|---|\n| t | — (it was not asked for) |\n"),
    ("claim", SUITES + "| MoE Tests | 48 | 48 | PASS |\n\nMoE tests 100% passing\n"),
    ("claim", "Call all of it\n"),
    ("ratio", "| C | A10G | L4 | Speedup |\n|---|---|---|---|\n| a | 940.8K | 525.7K | 1.79x |\n"),
    ("difference", COMPARED + "| t | 1.21 ms | 1.41 ms | GCP 14% faster |\n"),
    ("spread", "A10G is 1.8x faster (n=30)\n"),
    ("throughput", RATES + "| 32 | 128 | 4.35ms | 940.8K tok/s |\n"),
    ("throughput", RATES + "| all | 128 | 4.35ms | 99K tok/s |\n| 32 | 128 | 0 ms | 9 tok/s |\n"),
    ("difference", COMPARED + "| t | none | 2.00 ms | GCP 40% faster |\n"),
    ("cold-start", BLOCK.format("a: 0.2 ms\nb: 0.3 ms\nc: 0.2 ms\nd: 3 ms")),
    ("tolerance", "- PASS (max_diff=3.55e-04, tolerance 1e-3)\n- PASS (diff=0.00)\n"),
    ("cost", COSTS + "| a | 3600 s | $1.00 | $1.00 |\n| b | 637.5 s | $1.006 | $0.178 |\n"),
    ("architecture", "- `test_fp8_support_ampere` - PASSED\n\nThe A10G is Ampere, 8.6 (Ampere)\n"),
    ("fp8", "# NVIDIA A10G\n\n- FP8 enabled: False (A10G is Ampere)\n"),
    ("flash-attention-3", "# NVIDIA H100\n\nFlashAttention-3 ran well\n"),
    ("memory", "# NVIDIA L4\n\n**Memory**: 23,034 MiB (24.15 GB)\n"),
    ("encoding", "# A — B ✅ ≈ Straße\n"),
    ("instance", "| Instance | GPU |\n|---|---|\n| g6.xlarge | NVIDIA L4 |\n"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), LET_BE)
def test_a_rule_lets_be_what_is_so(rule, text):
    assert rule not in {finding.rule for finding in lint(text)}


def test_lines_are_those_of_the_file():
    text = "# T\r\n\r\n**A**: 1\n**B**: 2\n\n```\nC: 3\n```\n\n- x\n- y: 3/2 tests\n"
    document = read(ForeignDocument("a", text))
    assert [(p.key, p.value, p.line) for p in document.pairs] == [
        ("A", "1", 3), ("B", "2", 4), ("C", "3", 7),
    ]  # fmt: skip
    assert [(i.text, i.number) for i in document.items] == [("x", 10), ("y: 3/2 tests", 11)]


def test_cells_are_what_a_reader_sees():
    text = "| **A** | `b\\|c` |\n|---|---|\n| [x](y) | 1 |\n| **z** | **2** |\n"
    table = read(ForeignDocument("a", text)).tables[0]
    assert table.header == ("A", "b|c")
    assert [row.cells for row in table.rows] == [("x", "1"), ("z", "2")]
    assert [row.is_total for row in table.rows] == [False, True]


def test_figures_know_their_rounding():
    assert [q.text for q in quantities("~$0.70/hr, 12 GB, 940.8K tok/s")] == [
        "~$0.70", "12 GB", "940.8K tok/s",
    ]  # fmt: skip
    assert [q.seconds for q in quantities("10m 38s, 10 min 38 s")] == [60, 1, 60, 1]
    rate = only("940.8K tok/s")
    assert rate is not None
    assert (rate.value, rate.half, rate.is_rate) == (940800.0, 50.0, True)
    assert only("1,234.50").value == 1234.5
    assert only("two 2") is None
    assert list(quantities("1e999 ms and 9e-99")) == []
    assert [str(f) for f in fractions("5/5, v1/2.0, 1,055/1,055 and a/b")] == ["5/5", "1,055/1,055"]
    assert [p.contains(97.46) for p in percents("97.5% of")] == [True]


def test_several_documents_are_held_against_one_another():
    one = "# A10G - v1.0.0\n\n" + SUITES + "| **Total** | **5** | **6** | |\n"
    two = "# B - v1.0.0\n\n## AWS A10G\n- Tests: 4/6\n"
    found = lint(one, ForeignDocument("b.md", two))
    assert ("contradiction", "b.md", 4) in {(f.rule, f.document, f.line) for f in found}


def test_findings_are_sorted_and_bounded():
    rows = "".join(f"- Tests: {n + 2}/{n + 1} passed\n" for n in range(MOST + 30))
    found = [f for f in lint(rows) if f.rule == "fraction"]
    assert len(found) == MOST + 1
    assert found[-1].message == "and 30 more of this kind"
    every = lint((SEEDS / "004.md").read_text("utf-8"))
    assert list(every) == sorted(every, key=lambda f: (LEVELS.index(f.level), f.line))


def test_what_is_known_of_boards_agrees_with_the_catalogue():
    for name, device in INSTANCE_DEVICES.items():
        boards = [board for board in BOARDS if name.startswith(board.instances)]
        if device.compute_capability and not name.startswith(("p4de", "p5")):
            assert [board.capability for board in boards] == [device.compute_capability]
            assert boards_in(device.name.split("-")[0])[:1] == tuple(boards)
    for row in PLATFORMS.values():
        for board in boards_in(row.device):
            assert (board.capability, board.memory_gb) == (row.compute_capability, row.memory_gb)


def test_the_page_lists_every_rule():
    page = (ROOT / "docs" / "reference" / "lint.md").read_text("utf-8")
    for rule in (*RULES, *ACROSS, *EVIDENCE):
        assert f"| `{rule.id}` | {rule.says} | {rule.advice} |" in page
    known = {rule.id for rule in (*RULES, *ACROSS, *EVIDENCE)}
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == known


TEXTS = [path.read_text("utf-8") for path in sorted(SEEDS.glob("*.md"))]
NUMBERS = st.sampled_from(["0", "-5", "1e999", "0/0", "3/0", str(10**40), "$0/h", "0 ms", "1.0x"])


@settings(max_examples=60)
@given(st.data())
def test_any_document_is_read_without_a_crash(data):
    lines = data.draw(st.sampled_from(TEXTS)).split("\n")
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["numbers", "pipes", "shuffle", "text", "drop"]))
        if kind == "numbers":
            number = data.draw(NUMBERS)
            lines[at] = re.sub(r"\d+", lambda _, n=number: n, lines[at])
        elif kind == "pipes":
            lines[at] = lines[at].replace("|", "||")
        elif kind == "shuffle":
            lines[at] = "".join(random.Random(at).sample(lines[at], len(lines[at])))
        elif kind == "text":
            lines[at] = data.draw(st.text(max_size=60))
        elif len(lines) > 1:
            del lines[at]
    found = lint_documents([ForeignDocument("a.md", "\n".join(lines))], l4_run())
    assert all(1 <= f.line <= len(lines) + 1 for f in found)
