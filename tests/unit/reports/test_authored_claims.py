"""What people wrote, against the results of the run that they wrote it about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.domain.ingested import RunAnnotation
from reports.rules.authored import check_annotation
from tests.unit.reports.real_logs import l4_run
from tests.unit.reports.stories import release


def said(text, *, cell="", evidence=None, title=""):
    annotation = RunAnnotation(
        kind="conclusion", text=text, author="a person", at=datetime(2026, 1, 19, tzinfo=UTC),
        cell=cell, title=title,
    )  # fmt: skip
    return check_annotation(annotation, evidence or release())


CONTRADICTED = [
    ("99.2% test pass rate across all platforms", "", "figure", "269/279 (96.4%)"),
    ("All 185 tests pass on A10G", "aws-a10g", "figure", "175 of 185 passed"),
    ("185/185 tests passing", "aws-a10g", "figure", "175/185"),
    ("16/16 demonstrations passed", "aws-a10g", "figure", "15/16"),
    ("MoE support fully functional on GPU and TPU", "", "scope", "MoE on TPU"),
    ("FlexAttention patterns all functional", "gcp-l4", "degraded", "standard attention was used"),
    ("FP8 Training tests 100% passing", "aws-a10g", "claim", "FP8 Training failed: 10 failed"),
    ("MoE tests 100% passing", "local-cpu", "claim", "2 skipped"),
    ("The release is fully validated and production-ready.", "", "readiness", " failed"),
    ("Validated across all major platforms", "", "claim", "aws-a10g failed"),
    ("L4 is Ampere, so that FP8 is off", "", "architecture", "Ada Lovelace"),
    ("999.9K tok/s on the A10G", "aws-a10g", "figure", "nearest that was measured"),
]


@pytest.mark.parametrize(("text", "cell", "rule", "words"), CONTRADICTED)
def test_what_results_contradict_is_an_error(text, cell, rule, words):
    found = [f for f in said(text, cell=cell) if f.level == "error"]
    assert rule in {f.rule for f in found}
    assert any(words in f.message for f in found)
    assert {f.where for f in found} == {cell or "run"}


TRUE = [
    ("175/185 tests passing (94.6%)", "aws-a10g"),
    ("15/16 demonstrations", "aws-a10g"),
    ("MoE tests 100% passing", "aws-a10g"),
    ("All 48 tests of the MoE suite pass", "gcp-l4"),
    ("The FlexAttention demo passed degraded: it fell back to standard attention", "gcp-l4"),
    ("10 FP8 training tests failed due to a pydantic incompatibility", "aws-a10g"),
    ("L4 is Ada Lovelace", ""),
    ("Fixed buffer device mismatches when running on CUDA", ""),
    ("See <script>all</script> | of `it`", ""),
    ("", ""),
]


@pytest.mark.parametrize(("text", "cell"), TRUE)
def test_what_is_so_is_left_alone(text, cell):
    assert said(text, cell=cell) == ()


@pytest.mark.parametrize(
    "text",
    ["All device routing features now work correctly", "Prices are ~$0.70/hr",
     "Suitable for production on L4"],
)  # fmt: skip
def test_what_nothing_backs_is_a_warning(text):
    assert "warning" in {f.level for f in said(text, cell="local-cpu")}


def test_the_seeds_own_conclusion_against_its_logs():
    text = (
        "v0.4.6 validation is **COMPLETE** with all 185 tests and 25 demonstrations passing.\n\n"
        "- FlexAttention patterns all functional\n"
    )
    found = said(text, evidence=l4_run())
    assert [f.rule for f in found if f.level == "error"] == ["degraded"]
    assert "Falling back to standard attention" in found[0].message


def test_a_title_is_part_of_what_is_said():
    found = said("nothing", title="All 999 tests pass")
    assert [f.rule for f in found] == ["figure"]
