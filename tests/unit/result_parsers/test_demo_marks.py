"""Demos that mark their parts and sum them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.result_parsers.demo_output import DemoMarks
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedEnvironment,
    ParsedFallback,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    ParsedVersion,
    Provenance,
)
from tests.unit.result_parsers.demo_logs import golden, written

MARKS = "Results: 2/2 demos passed\n\n  [PASS] a\n  [PASS] b\n"


def _read(folder: Path, text: str) -> list[ParsedItem]:
    return list(DemoMarks().read(written(folder, text)))


def _of(said: list[ParsedItem], kind: type) -> list[ParsedItem]:
    return [one for one in said if isinstance(one, kind)]


def _errors(said: list[ParsedItem]) -> list[str]:
    return [one.message for one in said if isinstance(one, ParsedProblem) and one.level == "error"]


def test_the_flex_attention_demo_passed_nine_parts_and_is_degraded() -> None:
    said = list(DemoMarks().read(golden("flex_attention_demo.txt")))
    checks = [one for one in said if isinstance(one, ParsedCheck)]
    assert [c.outcome for c in checks] == ["passed"] * 9
    assert not any(c.inferred for c in checks)
    (degraded,) = [one for one in said if isinstance(one, ParsedFallback)]
    assert degraded.reason.endswith("Falling back to standard attention.")
    assert _of(said, ParsedVersion) == [ParsedVersion("KernelPyTorch", "0.4.4")]
    assert said[0] == ParsedJob(kind="demo")
    assert said[-1] == ParsedEnd(0)
    assert _errors(said) == []


def test_flex_attention_is_seen_to_be_twenty_times_slower() -> None:
    said = list(DemoMarks().read(golden("flex_attention_demo.txt")))
    metrics = [m for m in said if isinstance(m, ParsedMetric) and m.params.get("seq") == 64]
    assert metrics == [
        ParsedMetric("Performance Comparison/Flex", (17.03,), "ms", "lower", {"seq": 64}),
        ParsedMetric("Performance Comparison/Standard", (0.79,), "ms", "lower", {"seq": 64}),
        ParsedMetric(
            "Performance Comparison/Ratio",
            (0.05,),
            "x",
            "higher",
            {"seq": 64, "baseline": "Standard"},
        ),
    ]


def test_the_fp8_demo_tells_its_table_stamp_and_device() -> None:
    said = list(DemoMarks().read(golden("fp8_demo.txt")))
    assert len(_of(said, ParsedCheck)) == 8
    assert _of(said, ParsedVersion) == [ParsedVersion("KernelPyTorch", "0.4.5")]
    assert _of(said, ParsedFallback) == []
    ratios = [m for m in said if isinstance(m, ParsedMetric) and m.unit == "x"]
    assert [m.samples for m in ratios] == [(0.12,), (0.16,), (0.11,)]
    assert {m.params["baseline"] for m in ratios} == {"Std"}
    fp8 = next(m for m in said if isinstance(m, ParsedMetric))
    assert (fp8.name, fp8.samples, fp8.unit) == ("FP8 Performance Benchmark/FP8", (0.501,), "ms")
    assert fp8.params == {"in": 512, "out": 512, "batch": 32}
    (*_, last) = [one for one in said if isinstance(one, ParsedEnvironment)]
    device = {"vendor": "nvidia", "name": "NVIDIA L4", "compute_capability": "8.9"}
    assert last.facts == {"machine": {"devices": [device]}}


def test_a_failing_part_fails_the_job(tmp_path: Path) -> None:
    said = _read(
        tmp_path, "Results: 1/3 demos passed\n[PASS] a\n[FAIL] b: no GPU\n[SKIP] c (old)\n"
    )
    assert _of(said, ParsedCheck) == [
        ParsedCheck("a", "passed"),
        ParsedCheck("b", "failed", reason="no GPU"),
        ParsedCheck("c", "skipped", reason="old"),
    ]
    assert said[-1] == ParsedEnd(1)
    assert _errors(said) == []


def test_skips_do_not_spoil_the_end(tmp_path: Path) -> None:
    for total in (2, 3):
        said = _read(tmp_path, f"[PASS] a\n[PASS] b\n[SKIP] c\nResults: 2/{total} passed\n")
        assert said[-1] == ParsedEnd(0)


@pytest.mark.parametrize(
    "text",
    [
        "Results: 3/3 demos passed\n[PASS] a\n[PASS] b\n",
        "Results: 2/2 demos passed\n[PASS] a\n[FAIL] b\n",
        "Results: 1/2 demos passed\n[PASS] a\n[PASS] b\n",
    ],
)
def test_marks_and_sum_that_disagree_are_an_error(tmp_path: Path, text: str) -> None:
    said = _read(tmp_path, text)
    assert any("Results line says" in message for message in _errors(said))
    assert isinstance(said[-1], ParsedEnd)
    assert said[-1].exit_code == 1


def test_a_step_that_failed_after_a_good_sum_is_no_good_end(tmp_path: Path) -> None:
    line = "##[error]Process completed with exit code 1."
    said = _read(tmp_path, f"[PASS] a\nResults: 1/1 passed\n{line}\n")
    assert said[-1] == ParsedEnd(1, detail=line)
    assert line in _errors(said)


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):\nAssertionError",
        "❌ area",
        "some checks failed",
        "FAILED (failures=1)",
    ],
)
def test_what_fails_a_demo_that_runs_here_fails_an_ingested_one(tmp_path: Path, line: str) -> None:
    said = _read(tmp_path, f"[PASS] a\nResults: 1/1 passed\n{line}\n")
    detail = f"it says: {line.splitlines()[-1]}"
    assert said[-1] == ParsedEnd(1, detail=detail)
    assert detail in _errors(said)


def test_a_part_that_is_marked_twice_counts_as_the_worse(tmp_path: Path) -> None:
    said = _read(tmp_path, "[PASS] a\n[FAIL] a\n[PASS] a\nResults: 0/1 passed\n")
    assert [c.outcome for c in said if isinstance(c, ParsedCheck)] == ["passed", "failed"]
    assert len(_errors(said)) == 2
    assert said[-1] == ParsedEnd(1)


def test_a_torn_log_has_no_end(tmp_path: Path) -> None:
    text = "[PASS] a\nTraceback (most recent call last):\n  File x\nValueError: gone\n[PASS] b"
    said = _read(tmp_path, text)
    assert _of(said, ParsedEnd) == []
    (message,) = _errors(said)
    assert "middle of a line" in message
    assert "ValueError: gone" in message


def test_a_fallback_is_told_with_the_part_where_it_happened(tmp_path: Path) -> None:
    rule = "=" * 20
    text = f"{rule}\n  Causal Attention\n{rule}\nkernel failed, falling back to eager\n{MARKS}"
    (degraded,) = _of(_read(tmp_path, text), ParsedFallback)
    assert degraded == ParsedFallback(
        "kernel failed, falling back to eager (in 'Causal Attention')"
    )


def test_how_sure_it_is(tmp_path: Path) -> None:
    dialect = DemoMarks()
    assert dialect.provenance is Provenance.PARSED_TEXT
    assert dialect.match(written(tmp_path, MARKS)) == 0.9
    assert dialect.match(written(tmp_path, "[PASS] a\n")) == 0.6
    assert dialect.match(written(tmp_path, "Results: 1/1 demos passed\n")) == 0.45
    assert dialect.match(written(tmp_path, "hello\n")) == 0
    assert dialect.match(written(tmp_path, MARKS, name="report.md")) == 0
    for name in ("moe_demo.txt", "moe_benchmark.txt", "nvidia_backend.txt"):
        assert dialect.match(golden(name)) == 0


@pytest.mark.parametrize("line", ["exit code: 1", "rc=2", "Process finished with exit code 1"])
def test_a_bad_exit_code_as_the_last_line_contradicts_a_good_sum(tmp_path: Path, line: str) -> None:
    said = _read(tmp_path, f"{MARKS}{line}\n")
    (end,) = _of(said, ParsedEnd)
    assert end == ParsedEnd(1, detail=f"it says: {line}")
    (end,) = _of(_read(tmp_path, f"{MARKS}{line}\ndone\n"), ParsedEnd)
    assert end == ParsedEnd(0)
