"""Benchmarks that print a line for each figure, and the figures in those lines."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.measurement_lines import (
    MeasuredLine,
    Quantity,
    measured,
    quantity,
    relation,
)
from orchestrator.adapters.result_parsers.metric_dialects import MetricLines
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
)
from tests.unit.result_parsers.demo_logs import SEEDS, golden, written


def _read(folder: Path, text: str) -> list[ParsedItem]:
    return list(MetricLines().read(written(folder, text)))


def _metrics(said: list[ParsedItem]) -> list[ParsedMetric]:
    return [one for one in said if isinstance(one, ParsedMetric)]


def _checks(said: list[ParsedItem]) -> list[ParsedCheck]:
    return [one for one in said if isinstance(one, ParsedCheck)]


def _seed_block(number: int) -> str:
    text = (SEEDS / "004.md").read_text(encoding="utf-8")
    return str(re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[number])


def test_the_moe_benchmark() -> None:
    said = list(MetricLines().read(golden("moe_benchmark.txt")))
    assert said[0] == ParsedJob(kind="benchmark")
    assert said[-1] == ParsedEnd(0, inferred=True)
    name = "MoE Performance Benchmark (GCP L4)"
    rows = [(512, 7.79, 525_700.0), (1024, 13.17, 311_000.0)]
    expected = []
    for hidden, latency, speed in rows:
        params = {"hidden": hidden, "per": "batch"}
        expected += [
            ParsedMetric(f"{name}/latency", (latency,), "ms", "lower", params),
            ParsedMetric(f"{name}/throughput", (speed,), "tokens/s", "higher", params),
        ]
    assert _metrics(said) == expected


def test_the_benchmark_block_of_a_seed(tmp_path: Path) -> None:
    said = _read(tmp_path, _seed_block(0))
    metrics = _metrics(said)
    assert len(metrics) == len(_checks(said)) == 15
    assert metrics[0] == ParsedMetric(
        "NVIDIA Backend Benchmark/Backend creation/latency",
        (0.2956,),
        "ms",
        "lower",
        {"per": "iteration"},
    )
    assert {m.name.split("/")[0] for m in metrics} == {
        "NVIDIA Backend Benchmark", "NVIDIA Optimizer Benchmark", "FP8 Compiler Benchmark",
        "NVIDIA Memory Manager Benchmark", "FlashAttention-3 Benchmark", "CUDA Utilities Benchmark",
    }  # fmt: skip


def test_the_config_block_of_a_seed(tmp_path: Path) -> None:
    said = _read(tmp_path, _seed_block(2))
    values = {m.name: (m.samples, m.unit) for m in _metrics(said)}
    assert values["Configuration Validation/Default config/latency"] == ((375.16,), "ms")
    assert values["Configuration Creation Performance/Inference config/latency"] == ((0.24,), "ms")
    assert values["Configuration Validation/Inference config/latency"] == ((0.5,), "ms")
    assert values["Optimization Levels/Conservative/latency"] == ((14.14,), "ms")
    assert values["Optimization Levels/Conservative/throughput"] == ((452_734.0,), "samples/s")
    checks = {c.name: (c.outcome, c.value, c.unit) for c in _checks(said)}
    assert checks["Configuration Validation/Default config"] == ("passed", "5/5", "passed")
    assert checks["NVIDIA-Specific Features/Architecture detection"] == ("passed", "ampere", "")
    assert len(_metrics(said)) == 15
    assert len(checks) == 15


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("❌ Backend creation: 0.3 ms", "Backend creation"),
        ("❌ Model preparation: CUDA out of memory", "Model preparation"),
        ("✅ Default config: 3 ms (4/5 passed)", "Default config"),
        ("✅ Diagnostics: 4/5 passed", "Diagnostics"),
    ],
)
def test_a_cross_or_a_short_tally_is_a_failed_check(tmp_path: Path, line: str, name: str) -> None:
    said = _read(tmp_path, f"✅ Other: 1 ms\n{line}\n")
    check = _checks(said)[-1]
    assert (check.name, check.outcome) == (name, "failed")
    assert check.reason


def test_a_crossed_figure_is_no_metric_and_the_end_failed(tmp_path: Path) -> None:
    said = _read(tmp_path, "✅ A: 1 ms\n❌ B: 2 ms\n")
    assert [m.name for m in _metrics(said)] == ["A/latency"]
    assert said[-1] == ParsedEnd(1, inferred=True)


def test_a_traceback_at_the_end_is_a_failed_end(tmp_path: Path) -> None:
    text = "✅ A: 1 ms\nTraceback (most recent call last):\n  File x\nRuntimeError: boom\n"
    assert _read(tmp_path, text)[-1] == ParsedEnd(1, detail="RuntimeError: boom", inferred=True)


@pytest.mark.parametrize("text", ["A: 1 ms\nB: 2", "nothing\n", ""])
def test_a_torn_or_empty_log_has_no_end(tmp_path: Path, text: str) -> None:
    said = _read(tmp_path, text)
    assert isinstance(said[-1], ParsedProblem)
    assert said[-1].level == "error"


@pytest.mark.parametrize(
    ("text", "value", "unit", "kind"),
    [
        ("7.79ms/batch", 7.79, "ms", "latency"),
        ("0.2956 ms/iteration", 0.2956, "ms", "latency"),
        ("3.1 ms/token", 3.1, "ms/token", "latency"),
        ("12 µs", 12, "us", "latency"),
        ("1,234.5 s", 1234.5, "s", "latency"),
        ("525.7K tokens/sec", 525_700, "tokens/s", "throughput"),
        ("1.2M samples/second", 1_200_000, "samples/s", "throughput"),
        ("0.3G ops/s", 300_000_000, "ops/s", "throughput"),
        ("452,734 samples/sec", 452_734, "samples/s", "throughput"),
        ("8,470/s", 8470, "/s", "throughput"),
        ("41 images per second", 41, "images/s", "throughput"),
        ("30 fps", 30, "frames/s", "throughput"),
        ("12.3 TFLOPS", 12.3, "TFLOPS", "throughput"),
        ("30 Kernels/s", 30, "Kernels/s", "throughput"),
        ("8.4K/s", 8400, "/s", "throughput"),
        ("250 B/s", 250, "B/s", "throughput"),
        ("250 GB/s", 250, "GB/s", "throughput"),
        ("0.12x", 0.12, "x", "ratio"),
        ("7.8 ± 0.1 ms", None, "", ""),
        ("7.8 ms ± 0.1 ms", 7.8, "ms", "latency"),
        ("23 GB", None, "", ""),
        ("75.0%", None, "", ""),
        ("5", None, "", ""),
        ("-5 ms", None, "", ""),
        ("nan ms", None, "", ""),
        ("٣ ms", None, "", ""),
    ],
)
def test_quantities(text: str, value: float | None, unit: str, kind: str) -> None:
    found = quantity(text)
    said = (None, "", "") if found is None else (found.value, found.unit, found.kind)
    assert said == (value, unit, kind)


@pytest.mark.parametrize(
    ("line", "label", "params", "figures"),
    [
        ("Hidden size 512: 7.79ms/batch, 525.7K tokens/sec", "", {"hidden": 512},
         [("", 7.79), ("", 525_700.0)]),
        ("Seq=  64: Flex=17.03ms, Standard=0.79ms, Ratio=0.05x", "", {"seq": 64},
         [("Flex", 17.03), ("Standard", 0.79), ("Ratio", 0.05)]),
        ("Batch size:  8 | Latency: 1.2 ms | Throughput: 800 samples/s", "", {"batch": 8},
         [("Latency", 1.2), ("Throughput", 800.0)]),
        ("batch=8, seq=128: 12.3 ms", "", {"batch": 8, "seq": 128}, [("", 12.3)]),
        ("Conservative: 14.14ms (452,734 samples/sec)", "Conservative", {},
         [("", 14.14), ("", 452_734.0)]),
        ("Flex=1ms, Standard=2ms", "", {}, [("Flex", 1.0), ("Standard", 2.0)]),
    ],
)  # fmt: skip
def test_lines(
    line: str, label: str, params: dict[str, int], figures: list[tuple[str, float]]
) -> None:
    found = measured(line)
    assert isinstance(found, MeasuredLine)
    assert (found.label, dict(found.params)) == (label, params)
    assert [(f.name, f.quantity.value) for f in found.figures] == figures


@pytest.mark.parametrize(
    "line",
    [
        "Timeout: 30 s", "Retry every: 5 s", "Memory: 23 GB",
        "Step 1: main_loss=2.3073, aux_loss=7.02", "Expert capacities: [157, 157]",
        "12:30:05: started in 3 s mode", "finished in 3.2s", "Decay: 0.9x per epoch",
        "https://example.org/3/s",
    ],
)  # fmt: skip
def test_lines_that_measure_nothing(line: str) -> None:
    assert measured(line) is None


def test_how_sure_it_is(tmp_path: Path) -> None:
    dialect = MetricLines()
    assert dialect.match(golden("moe_benchmark.txt")) == 0.3
    assert dialect.match(written(tmp_path, "✅ A: 1 ms\n")) == 0.5
    assert dialect.match(written(tmp_path, "✅ A: 1 ms\n", name="report.md")) == 0
    assert dialect.match(golden("nvidia_backend.txt")) == 0
    assert dialect.match(golden("fp8_tests.txt")) == 0


@pytest.mark.parametrize(
    "line", ["1," * 30_000, "a=1ms, " * 40, "(" * 300, "1ms " * 70, "x: " * 99, " " * 299 + "1ms"]
)
def test_long_lines_take_no_longer_than_they_should(line: str) -> None:
    begin = time.thread_time()
    measured(line)
    assert time.thread_time() - begin < 0.2


@given(st.text(alphabet="0123456789.,xmsKµ/:=|() ±eE+-ab✅", max_size=120))
def test_any_line_is_read(line: str) -> None:
    found = measured(line)
    for figure in found.figures if found else ():
        assert isinstance(figure.quantity, Quantity)
        assert 0 <= figure.quantity.value < float("inf")


@pytest.mark.parametrize(
    ("ratio", "first", "second", "direction"),
    [
        ("2.0x", "1.0 ms", "2.0 ms", "higher"),
        ("0.5x", "1.0 ms", "2.0 ms", "lower"),
        ("1.9x", "1.0 ms", "2.0 ms", "higher"),  # of 1.04 and 1.96, before they were rounded
        ("2.1x", "1.0 ms", "2.0 ms", "higher"),
        ("1.7x", "1.0 ms", "2.0 ms", ""),
        ("2.3x", "1.0 ms", "2.0 ms", ""),
        ("2.0x", "1.0 ms", "2.0 s", ""),
        ("2.0x", "0.0 ms", "2.0 ms", ""),
    ],
)
def test_what_a_ratio_beside_two_times_is(
    ratio: str, first: str, second: str, direction: str
) -> None:
    said = [quantity(text) for text in (ratio, first, second)]
    assert all(said)
    assert relation(*said) == direction


@pytest.mark.parametrize("line", ["exit code: 1", "make: *** [bench] Error 1"])
def test_a_bad_exit_code_below_figures_is_no_good_end(tmp_path: Path, line: str) -> None:
    (end,) = [one for one in _read(tmp_path, f"A: 1 ms\n{line}\n") if isinstance(one, ParsedEnd)]
    assert (end.exit_code, end.detail) == (1, line)
