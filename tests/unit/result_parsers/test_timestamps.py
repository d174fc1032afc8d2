"""When it happened, as structured documents say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from orchestrator.adapters.result_parsers.bounded_input import parsed_epoch, parsed_time
from orchestrator.adapters.result_parsers.ctrf import Ctrf
from orchestrator.adapters.result_parsers.device_results import DeviceResults
from orchestrator.adapters.result_parsers.json_report import PytestJsonReport
from orchestrator.adapters.result_parsers.junit import JUnitXml
from orchestrator.adapters.result_parsers.pytest_benchmark import PytestBenchmark
from orchestrator.domain.parsed_results import ParsedTime
from tests.unit.result_parsers.foreign import foreign


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-19T10:00:00.5", datetime.fromisoformat("2026-01-19T10:00:00.500")),
        ("2026-01-19T10:00:00Z", datetime(2026, 1, 19, 10, tzinfo=UTC)),
        (
            "2026-01-19T10:00:00+02:00",
            datetime(2026, 1, 19, 10, tzinfo=timezone(timedelta(hours=2))),
        ),
        ("2026-01-19", datetime.fromisoformat("2026-01-19")),
    ],
)
def test_a_time_is_kept_as_it_is_written(text: str, at: datetime):
    [said] = parsed_time(text)
    assert said.at == at
    assert said.at.tzinfo == at.tzinfo


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "0001-01-01T00:00:00", "9999-12-31T23:59:59-10:00", "2026-13-01", "20260119",
        None, 7, "2" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_time_says_nothing(text: object):
    assert list(parsed_time(text)) == []


@pytest.mark.parametrize("number", [None, 0.0, -5.0, 1e300, float("nan"), float("inf"), 12.0])
def test_what_is_no_number_of_seconds_says_nothing(number: float | None):
    assert list(parsed_epoch(number)) == []


@pytest.mark.parametrize(
    ("dialect", "name", "has_zone"),
    [
        (JUnitXml(), "gtest.xml", False),
        (JUnitXml(), "pytest-xunit2.xml", True),
        (Ctrf(), "ctrf-retries.json", True),
        (PytestJsonReport(), "pytest-json-report.json", True),
        (PytestBenchmark(), "pytest-benchmark.json", True),
        (DeviceResults(), "intel-results.json", False),
    ],
)
def test_every_format_that_has_a_time_says_it(dialect, name: str, has_zone: bool):
    said = [one.at for one in dialect.read(foreign(name)) if isinstance(one, ParsedTime)]
    assert said
    assert {at.year for at in said} <= {2025, 2026}
    assert all((at.tzinfo is not None) == has_zone for at in said)
