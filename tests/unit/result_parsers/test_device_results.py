"""``results.json`` of a device's own retest."""

from __future__ import annotations

import json

import pytest

from orchestrator.adapters.result_parsers.device_results import DeviceResults
from orchestrator.domain.outcome import TestOutcome as Outcome
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedEnvironment,
    ParsedJob,
    ParsedMetric,
    ParsedTally,
    ParsedUnnamedTests,
)
from tests.unit.result_parsers.foreign import (
    FOREIGN,
    errors,
    foreign,
    made,
    of_kind,
    outcomes,
    warnings,
)

DIALECT = DeviceResults()
CLAIMED = (FOREIGN / "intel-results.json").read_bytes()


def read(folder, value):
    text = value if isinstance(value, bytes | str) else json.dumps(value)
    return list(DIALECT.read(made(folder, text, "results.json")))


def test_a_pass_without_the_device_is_exposed():
    said = list(DIALECT.read(foreign("intel-results.json")))
    (error,) = errors(said)
    assert error.startswith("it says PASS, and that no XPU was available (platform darwin)")
    (environment,) = of_kind(said, ParsedEnvironment)
    assert environment.facts == {"torch": "2.9.1", "machine": {"os": "darwin"}}
    checks = {c.name: (c.outcome, c.reason) for c in of_kind(said, ParsedCheck)}
    assert checks == {
        "backend_import": ("passed", ""),
        "device_detection": ("passed", ""),
        "memory": ("skipped", "needs a device"),
        "status": ("skipped", "no XPU was available"),
    }
    assert of_kind(said, ParsedUnnamedTests)[0].counts == {"passed": 66, "failed": 0, "skipped": 4}
    assert of_kind(said, ParsedTally)[0].total == 70
    assert [(m.name, m.unit, m.samples) for m in of_kind(said, ParsedMetric)] == [
        ("latency", "ms", (1.25,)),
        ("throughput", "tokens/s", (1000.0,)),
    ]
    assert of_kind(said, ParsedJob)[0].kind == "suite"


def test_with_the_device_it_is_told():
    said = list(DIALECT.read(foreign("intel-results-xpu.json")))
    (environment,) = of_kind(said, ParsedEnvironment)
    assert environment.facts["machine"]["devices"] == [
        {"name": "Intel Data Center GPU Max 1100", "vendor": "intel", "memory_bytes": 48 * 10**9}
    ]
    assert outcomes(said) == {
        "results::test_import": Outcome.PASSED,
        "results::test_copy": Outcome.FAILED,
    }
    (metric,) = of_kind(said, ParsedMetric)
    assert (metric.name, metric.unit, metric.direction) == ("copy", "GB/s", "higher")
    assert metric.samples == (900.5, 910.0)
    assert errors(said) == []


@pytest.mark.parametrize("key", ["status", "outcome", "result", "state", "passed", "success"])
def test_a_state_has_one_of_several_names(tmp_path, key):
    said = read(tmp_path, {"cuda_available": True, "tests": [{"name": "copy", key: "failed"}]})
    assert outcomes(said) == {"tests::copy": Outcome.FAILED}


@pytest.mark.parametrize(
    ("text", "name", "confidence"),
    [
        (CLAIMED.decode(), "intel_devcloud/results.json", 0.8),
        (CLAIMED.decode(), "other.json", 0.6),
        ('{"xpu_available": true}', "results.json", 0.5),
        ('{"xpu_available": true}', "x.json", 0.3),
        ('{"status": "PASS"}', "results.json", 0.0),
        ("[]", "results.json", 0.0),
    ],
)
def test_how_sure_it_is(tmp_path, text, name, confidence):
    assert DIALECT.match(made(tmp_path, text, name)) == confidence


def test_a_verdict_that_failed_and_one_that_is_none(tmp_path):
    failed = {"xpu_available": False, "status": "FAIL"}
    assert of_kind(read(tmp_path, failed), ParsedCheck) == [
        ParsedCheck("status", "failed", value="FAIL")
    ]
    odd = {"xpu_available": False, "status": "splendid", "colour": "blue"}
    said = read(tmp_path, odd)
    assert of_kind(said, ParsedCheck) == []
    assert warnings(said) == [
        "it says that no XPU was available",
        "not understood: colour, status splendid",
    ]


def test_figures_without_a_unit_are_left_out_and_said(tmp_path):
    document = {"cuda_available": True, "benchmarks": {"a": 1, "b_ms": 2, "speedup": 1.5}}
    said = read(tmp_path, document)
    assert [(m.name, m.unit) for m in of_kind(said, ParsedMetric)] == [
        ("b", "ms"),
        ("speedup", "x"),
    ]
    assert warnings(said) == ["1 figures are left out: they have no unit"]


def test_a_torn_file_keeps_what_came(tmp_path):
    cut = CLAIMED.index(b'"benchmarks"')
    said = read(tmp_path, CLAIMED[:cut])
    assert of_kind(said, ParsedUnnamedTests)[0].counts["passed"] == 66
    assert "torn" in errors(said)[-1]
    assert of_kind(said, ParsedEnd) == []
