"""What a job may say of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.agent.event_lines import BadLineError, Checks, understand
from runners.agent.tail_json_lines import JsonLinesTail

METRIC = {"metric": "m", "samples": [1, 2.5], "unit": "ms", "direction": "lower"}


def test_the_three_forms() -> None:
    assert understand({"check": "a", "outcome": "passed", "extra": 1}) == (
        "check",
        {"check": "a", "outcome": "passed"},
    )
    assert understand({**METRIC, "params": {"batch": 8}}) == (
        "metric",
        {**METRIC, "params": {"batch": 8}},
    )
    assert understand({"degraded": "no GPU"}) == ("check", {"degraded": "no GPU"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({}, "neither check nor metric nor degraded"),
        ({"check": "", "outcome": "passed"}, "check must be a text"),
        ({"check": "a" * 501, "outcome": "passed"}, "longer than 500 characters"),
        ({"check": "a", "outcome": True}, "outcome must be one of passed, failed, skipped"),
        ({"check": "a", "outcome": "PASSED"}, "outcome must be one of"),
        ({"check": "a", "outcome": "passed", "value": float("nan")}, "no finite number"),
        ({"check": "a", "outcome": "passed", "value": 2**63}, "too large"),
        ({**METRIC, "samples": [1e300]}, "too large"),
        ({"check": "a", "outcome": "passed", "value": [1]}, "value must hold a number"),
        ({"check": "a", "outcome": "passed", "unit": 3}, "unit must be a text"),
        ({**METRIC, "samples": []}, "samples must be a list"),
        ({**METRIC, "samples": [1, True]}, "samples must hold a number"),
        ({**METRIC, "samples": [float("inf")]}, "no finite number"),
        ({**METRIC, "samples": [0] * 100_001}, "100000 are the most"),
        ({**METRIC, "direction": "up"}, "direction must be one of higher, lower"),
        ({**METRIC, "unit": None}, "unit must be a text"),
        ({**METRIC, "params": [1]}, "params must be an object"),
        ({"degraded": 1}, "degraded must be a text"),
    ],
)
def test_bad_lines(line: dict[str, object], says: str) -> None:
    with pytest.raises(BadLineError) as caught:
        understand(line)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"value": 4.05, "expected": 4, "tolerance": 0.1}, "passed"),
        ({"value": 5.0, "expected": 4.0, "tolerance": 0.1}, "failed"),
        ({"value": 5.0, "tolerance": 0.1}, "passed"),  # nobody knows what it should be
        ({"value": "5", "expected": "4", "tolerance": "0.1"}, "failed"),
        ({"value": " 5.05", "expected": 5, "tolerance": 0.1}, "passed"),
        ({"value": "nan", "expected": 5, "tolerance": 0.1}, "failed"),
        ({"value": "about 5", "expected": 5, "tolerance": 0.1}, "failed"),
        ({"value": "about 5", "tolerance": 0.1}, "passed"),
        ({"value": "about 5", "expected": 5}, "passed"),
        ({"value": "nan", "expected": 5}, "failed"),
        ({"value": " -inf", "expected": 5}, "failed"),
        ({"value": None, "expected": 5}, "failed"),
        ({"value": 5, "expected": None}, "passed"),
        ({"value": 5, "expected": "NaN"}, "failed"),
        ({"value": "nan", "expected": "nan"}, "passed"),
        ({"value": "nan", "tolerance": 0.1}, "failed"),
        ({"value": None, "expected": 5, "tolerance": 0.1}, "failed"),
        ({"value": 5, "expected": None, "tolerance": 0.1}, "failed"),
        ({"value": None, "tolerance": 0.1}, "failed"),
        ({"expected": 5, "tolerance": 0.1}, "failed"),
        ({"value": 5, "expected": 4, "tolerance": None}, "failed"),
        ({"value": 3, "expected": 2}, "failed"),
        ({"value": 2.0, "expected": 2}, "passed"),
        ({"value": "3", "expected": 2}, "failed"),
        ({"value": " 2.0", "expected": "2"}, "passed"),
        ({"value": False, "expected": True}, "failed"),
        ({"value": "True", "expected": True}, "passed"),
        ({"value": "cpu", "expected": "cuda"}, "failed"),
        ({"value": "cuda", "expected": "cuda"}, "passed"),
        ({"value": 0.2, "expected": "below 0.5"}, "passed"),
        ({"expected": 2}, "passed"),
        ({"value": 2}, "passed"),
        ({"value": 5, "expected": 5, "tolerance": True}, "failed"),
        ({"value": True, "expected": 4, "tolerance": 0.1}, "failed"),
        ({"value": False, "expected": True, "tolerance": 1}, "failed"),
        ({"value": "True", "expected": True, "tolerance": 0}, "passed"),
    ],
)
def test_a_check_passes_within_its_tolerance(given: dict[str, object], outcome: str) -> None:
    kind, data = understand({"check": "a", "outcome": "passed", **given})
    assert (kind, data["outcome"]) == ("check", outcome)
    assert bool(data.get("reason")) == (outcome == "failed")


@given(
    st.dictionaries(
        st.sampled_from(["check", "metric", "outcome", "samples", "unit", "direction", "params"]),
        st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.floats()),
    )
)
def test_nothing_else_comes_out(line: dict[str, object]) -> None:
    try:
        kind, data = understand(line)
    except BadLineError:
        return
    assert kind in ("check", "metric")
    assert set(data) <= {
        "check", "outcome", "value", "expected", "unit", "tolerance", "reason",
        "metric", "samples", "direction", "params",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: None, ""),
        (lambda path: path.unlink(), "was deleted"),
        (lambda path: (path.unlink(), path.write_text(BETTER)), "was replaced by another file"),
        (lambda path: path.write_text(""), "was truncated"),
    ],
    ids=["appended", "deleted", "replaced", "truncated"],
)
def test_a_file_that_did_not_only_grow_is_told(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    tail = JsonLinesTail(tmp_path / "events")
    tail.create()
    (tmp_path / "events").write_text('{"check": "a", "outcome": "failed"}\n')
    [(_, line, _)] = tail.poll()
    assert line == {"check": "a", "outcome": "failed"}
    change(tmp_path / "events")
    assert (tail.drain(), tail.lost) == ([], says)


BETTER = '{"check": "a", "outcome": "passed"}\n'


def test_a_line_with_a_key_twice_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text('{"check": "a", "outcome": "failed", "outcome": "passed"}\n')
    ((number, line, wrong),) = JsonLinesTail(path).drain()
    assert (number, line) == (1, None)
    assert wrong == "not JSON: the key 'outcome' is there twice"


@pytest.mark.parametrize("other", [{"unit": "s"}, {"direction": "higher"}])
def test_a_metric_in_two_units_or_directions_is_refused(
    tmp_path: Path, other: dict[str, str]
) -> None:
    path = tmp_path / "events"
    heard: list[tuple[str, Any]] = []
    lines = [METRIC, {**METRIC, "params": {"n": 2}, **other}, {**METRIC, **other}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    events: Any = SimpleNamespace(log=lambda *_: None)
    checks = Checks(JsonLinesTail(path), events, "bench", hear=lambda *said: heard.append(said))
    checks.drain()
    *metrics, (kind, failed) = heard
    assert [kind for kind, _ in metrics] == ["metric", "metric"]
    named = "'ms' (lower is better) and '{unit}' ({direction} is better)".format(
        **{**METRIC, **other}
    )
    assert (kind, failed["check"]) == ("check", "unusable-events")
    assert f"the metric 'm' is in {named}: name them differently" in failed["reason"]
