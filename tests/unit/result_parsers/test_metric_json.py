"""Figures as JSON, and what a job of a payload measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.adapters.result_parsers.job_metrics import JobMetrics
from orchestrator.adapters.result_parsers.metric_dialects import MetricJson
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.domain.parsed_results import ParsedMetric, ParsedProblem
from tests.unit.result_parsers.demo_logs import written

LIST = [
    {"name": "decode", "unit": "tokens/s", "value": 525.5},
    {"name": "latency", "unit": "ms", "value": 7.5, "range": "± 0.1"},
    {"name": "size", "unit": "MB", "value": 12, "direction": "smaller"},
]
LINE = {"metric": "latency", "samples": [1.5, 2], "unit": "ms", "params": {"batch": 8}}
PRINTED = f"""\
loading
{json.dumps(LINE)}
Hidden size 512: 7.79ms/batch
done
"""
ROUNDS = {
    "machine_info": {"node": "n"},
    "commit_info": {},
    "benchmarks": [
        {"name": "test_sort", "fullname": "t.py::test_sort", "params": None,
         "stats": {"data": [0.25, 0.5], "rounds": 2}},
    ],
}  # fmt: skip


def test_a_list_of_figures(tmp_path: Path) -> None:
    artifact = written(tmp_path, json.dumps(LIST))
    assert MetricJson().match(artifact) == 0.7
    said = [one for one in MetricJson().read(artifact) if isinstance(one, ParsedMetric)]
    assert said == [
        ParsedMetric("decode", (525.5,), "tokens/s", "higher"),
        ParsedMetric("latency", (7.5,), "ms", "lower"),
        ParsedMetric("size", (12.0,), "MB", "lower"),
    ]


def test_what_is_no_figure_is_said(tmp_path: Path) -> None:
    broken = [{"name": "a", "value": "fast"}, {"unit": "ms", "value": 1}, {"name": "b", "value": 2}]
    said = list(MetricJson().read(written(tmp_path, json.dumps(broken))))
    assert sum(isinstance(one, ParsedProblem) for one in said) == 2
    assert ParsedMetric("b", (2.0,), "", "") in said


@pytest.mark.parametrize(("unit", "number"), [("ms", 1), ("tokens/s", 1), ("dB", 0), ("", 0)])
def test_a_negative_time_or_rate_is_no_figure(tmp_path: Path, unit: str, number: int) -> None:
    figure = [{"name": "a", "value": -3, "unit": unit}]
    said = list(MetricJson().read(written(tmp_path, json.dumps(figure))))
    assert sum(isinstance(one, ParsedProblem) for one in said) == number
    assert sum(isinstance(one, ParsedMetric) for one in said) == 1 - number


@pytest.mark.parametrize("text", ["[]", '{"name": "x"}', '[{"value": 1}]', "name: x"])
def test_other_json_is_nothing_of_its(tmp_path: Path, text: str) -> None:
    assert MetricJson().match(written(tmp_path, text)) == 0.0


NOTHING = "it holds no figure that can be read"
PRINTS = 'print lines such as "latency: 8.1 ms" (docs/extending/job.md)'
HOLDS = 'write [{"name": "latency", "value": 8.1, "unit": "ms"}] (docs/extending/job.md)'


def test_the_examples_of_what_can_be_read_are_read() -> None:
    read = JobMetrics(FileDialects())
    written = HOLDS.removeprefix("write ").partition(" (")[0]
    for name, text in (("output", PRINTS.split('"')[1]), ("a.json", written)):
        found, problems = read(name, [text.encode()])
        assert [(one.samples, one.unit, problems) for one in found] == [((8.1,), "ms", ())]


@pytest.mark.parametrize(
    ("name", "text", "metrics", "problems"),
    [
        (
            "output",
            PRINTED,
            [("latency", (1.5, 2.0), "ms"), ("latency", (7.79,), "ms")],
            (),
        ),
        ("bench.json", json.dumps(ROUNDS), [("test_sort", (0.25, 0.5), "s")], ()),
        ("figures.json", json.dumps(LIST[:1]), [("decode", (525.5,), "tokens/s")], ()),
        ("output", "all is well\n", [], (f"{NOTHING}; {PRINTS}",)),
        ("output", "gate_us: 8138\n", [], (f"{NOTHING}; {PRINTS}",)),
        ("bench.json", "{", [], (f"{NOTHING}; {HOLDS}",)),
    ],
)
def test_what_a_job_measured(
    name: str, text: str, metrics: list[tuple[str, tuple[float, ...], str]], problems: object
) -> None:
    read = JobMetrics(FileDialects())
    found, said = read(name, [text[:10].encode(), text[10:].encode()])
    assert [(one.name, one.samples, one.unit) for one in found] == metrics
    assert said == problems
