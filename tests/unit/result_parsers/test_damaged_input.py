"""Whatever stands in a file, a dialect reads it or refuses it, and what it says can be stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.ctrf import Ctrf
from orchestrator.adapters.result_parsers.demo_output import DemoHeadings, DemoMarks
from orchestrator.adapters.result_parsers.device_results import DeviceResults
from orchestrator.adapters.result_parsers.json_report import PytestJsonReport
from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.adapters.result_parsers.metric_dialects import MetricJson, MetricLines
from orchestrator.adapters.result_parsers.nvidia_smi import NvidiaSmi
from orchestrator.adapters.result_parsers.pytest_benchmark import PytestBenchmark
from orchestrator.adapters.result_parsers.transcription import Transcription
from orchestrator.application.ports.result_parsers import Dialect
from orchestrator.domain.parsed_results import ParsedEnd
from tests.unit.result_parsers.foreign import FOREIGN, json_like, made, mutated, survives

TRIED = settings(max_examples=60)
REAL = [
    (Ctrf(), "ctrf.json", ["pytest-ctrf.json", "ctrf-retries.json"]),
    (DeviceResults(), "results.json", ["intel-results.json"]),
    (PytestJsonReport(), "report.json", ["pytest-json-report.json"]),
    (JUnitXml(), "junit.xml", ["pytest-xunit2.xml", "gtest.xml"]),
    (NvidiaSmi(), "gpu.csv", ["nvidia-query.csv", "nvidia-series.csv", "nvidia-table.txt"]),
    (PytestBenchmark(), "benchmark.json", ["pytest-benchmark.json"]),
    (Transcription(), "transcription.yaml", ["transcription.yaml"]),
]


@pytest.mark.parametrize(
    ("dialect", "document"),
    [
        (Ctrf(), '{"reportFormat":"CTRF","results":{"tests":[%s]}}'),
        (DeviceResults(), '{"platform":"xpu","validation":%s}'),
        (MetricJson(), '[{"name":"t","value":1,"unit":"ms"},%s]'),
        (PytestJsonReport(), '{"tests":[%s],"summary":{"total":1},"exitcode":0}'),
        (PytestBenchmark(), '{"benchmarks":[%s]}'),
    ],
)
def test_a_key_that_occurs_twice_contradicts_a_pass(tmp_path, dialect, document):
    """One of the two values is wrong, and the file does not say which."""
    one = '{"name":"a","nodeid":"a","status":"passed","outcome":"passed"}'
    two = one.replace('"status"', '"status":"failed","status"')
    told = {}
    for text in (one, two):
        said = list(dialect.read(made(tmp_path, document % text, "file.json")))
        [told[text]] = [each for each in said if isinstance(each, ParsedEnd)]
    assert told[one].exit_code in (0, None)
    assert told[two].exit_code == 1
    assert "a key occurs twice: status" in told[two].detail


@pytest.mark.parametrize(("dialect", "name", "files"), REAL, ids=[name for _, name, _ in REAL])
@TRIED
@given(data=st.data())
def test_noise_is_survived(
    dialect: Dialect, name: str, files: list[str], data: st.DataObject
) -> None:
    original = data.draw(st.sampled_from(files))
    raw = st.binary(max_size=300) | mutated((FOREIGN / original).read_bytes())
    survives(dialect, data.draw(raw), name)


def ctrf(a: Any, b: Any, c: Any) -> object:
    results = {"tests": [a, a], "summary": b, "environment": c}
    return {"reportFormat": "CTRF", "results": results}


def device(a: Any, b: Any, c: Any) -> object:
    document = {"xpu_available": False, "tests": a, "validation": a, "status": c}
    return document | {"benchmarks": b, "devices": c, "platform": c}


def report(a: Any, b: Any, c: Any) -> object:
    told = {"nodeid": "a", "outcome": c, "call": b, "setup": {"outcome": b}}
    document = {"tests": [a, told], "collectors": [b], "summary": a}
    return document | {"exitcode": c, "duration": c, "environment": c}


def benchmark(a: Any, b: Any, c: Any) -> object:
    told = [a, {"name": "a", "stats": b, "params": c}]
    return {"machine_info": c, "commit_info": c, "benchmarks": told}


def transcription(a: Any, b: Any, c: Any) -> object:
    head = {"apiVersion": "seatrial/v1", "kind": "Transcription", "of": "x"}
    return head | {"jobs": [a, b], "environment": c}


DOCUMENTS = [
    (Ctrf(), "ctrf.json", ctrf,
     ("reportFormat CTRF specVersion results tool summary tests environment name status duration "
      "suite filePath retries retryAttempts flaky passed failed other rawStatus message trace")),
    (DeviceResults(), "results.json", device,
     ("platform xpu_available cuda_available torch_version status PASS FAIL tests results "
      "validation benchmarks devices name passed failed total latency_ms environment error")),
    (PytestJsonReport(), "report.json", report,
     ("created duration exitcode root environment summary collectors tests nodeid outcome setup "
      "call teardown longrepr crash message passed failed error skipped total collected Packages")),
    (PytestBenchmark(), "benchmark.json", benchmark,
     ("machine_info commit_info benchmarks name fullname params group stats data median rounds "
      "python_version cpu brand_raw project version dirty")),
    (Transcription(), "transcription.json", transcription,
     "of jobs id kind suite counts tests checks metrics samples passed outcome params"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "name", "document", "keys"), DOCUMENTS, ids=[row[1] for row in DOCUMENTS]
)
@TRIED
@given(data=st.data())
def test_any_json_is_survived(
    dialect: Dialect,
    name: str,
    document: Callable[[Any, Any, Any], object],
    keys: str,
    data: st.DataObject,
) -> None:
    parts = (data.draw(json_like(keys.split())) for _ in range(3))
    survives(dialect, json.dumps(document(*parts)).encode(), name)


TAGS = ["testsuites", "testsuite", "testcase", "failure", "error", "skipped", "rerunFailure", "x"]
NAMES = st.sampled_from(["name", "classname", "file", "time", "tests", "failures", "type"])
VALUES = st.sampled_from(["", "1", "nan", "pytest", "pytest.xfail", "a.b.C", "[", "::", "é.py"])
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=5)
TREES = st.recursive(
    st.tuples(st.sampled_from(TAGS), ATTRIBUTES, st.just([])),
    lambda inner: st.tuples(st.sampled_from(TAGS), ATTRIBUTES, st.lists(inner, max_size=4)),
    max_leaves=20,
)


def xml(tag: str, attributes: dict[str, str], inner: list[Any]) -> str:
    told = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{told}>{''.join(xml(*each) for each in inner)}</{tag}>"


@TRIED
@given(TREES)
def test_any_tree_of_junits_elements_is_survived(tree: tuple[str, dict[str, str], list[Any]]):
    survives(JUnitXml(), xml("testsuites", {}, [tree]).encode(), "junit.xml")


CELLS = st.sampled_from(
    ["name", "index", "NVIDIA L4", "GPU-12345678", "[N/A]", "5 %", "1e9 MiB", "", "-", "é",
     "9" * 30]
)  # fmt: skip


@TRIED
@given(st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=8), st.booleans())
def test_any_table_of_nvidia_smi_is_survived(rows: list[list[str]], has_header: bool) -> None:
    lines = [", ".join(row) for row in rows]
    if has_header:
        lines.insert(0, "timestamp, name, memory.total [MiB], utilization.gpu [%]")
    survives(NvidiaSmi(), "\n".join(lines).encode(), "gpu.csv")


PIECES = [
    "Demo 1: a", "Demo 2/9: b", "=" * 30, "All demos completed!", "  x", "ValueError: y",
    "Traceback (most recent call last):", "Time: 3 ms", "Time ratio: 0x", "a:",
    "    b: 1 s, c=0 s, d=1x", "[PASS] a", "[FAIL] b: c", "[SKIP] (", "Results: 1/2 demos passed",
    "Title", "  In  Out  T (ms)", "-" * 30, " 1 2 3.5", "✅ x: 1 ms", "a: 3ms, 2x", "\r",
    "\x1b[31m", "x: y=1, z=2.0ms | w", "Group:", "❌ B", "✅ C: 2/3 passed", "📊 Head",
    "  x  y (ms)", "Speedup: 2x", "Ratio: 0x", "a=0ms, b=0ms, ratio=0x",
]  # fmt: skip


@pytest.mark.parametrize("dialect", [DemoHeadings(), DemoMarks(), MetricLines()])
@TRIED
@given(lines=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=60)), max_size=40))
def test_any_text_of_a_demo_is_read(dialect: Dialect, lines: list[str]) -> None:
    raw = "\n".join(lines).encode("utf-8", errors="surrogatepass")
    said = survives(dialect, raw, "fuzz.txt")
    assert sum(isinstance(one, ParsedEnd) for one in said) <= 1
