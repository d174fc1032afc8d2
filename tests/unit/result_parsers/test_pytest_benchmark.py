"""What pytest-benchmark writes."""

from __future__ import annotations

import json

import pytest

from orchestrator.adapters.result_parsers.pytest_benchmark import MOST_SAMPLES, PytestBenchmark
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedEnvironment,
    ParsedJob,
    ParsedMetric,
    ParsedVersion,
)
from tests.unit.result_parsers.foreign import (
    FOREIGN,
    errors,
    foreign,
    made,
    of_kind,
    warnings,
)

DIALECT = PytestBenchmark()
REAL = (FOREIGN / "pytest-benchmark.json").read_bytes()


def read(folder, value):
    text = value if isinstance(value, bytes | str) else json.dumps(value)
    return list(DIALECT.read(made(folder, text, "benchmark.json")))


def benchmark(**stats):
    return {"machine_info": {}, "benchmarks": [{"name": "test_a", "stats": stats}]}


def test_every_round_is_kept():
    document = foreign("pytest-benchmark.json")
    said = list(DIALECT.read(document))
    metrics = of_kind(said, ParsedMetric)
    rounds = {
        each["fullname"]: tuple(each["stats"]["data"]) for each in json.loads(REAL)["benchmarks"]
    }
    assert DIALECT.match(document) == 0.95
    assert {m.samples for m in metrics} == set(rounds.values())
    assert [(m.name, m.params) for m in metrics] == [
        ("test_sum", {"n": 10}),
        ("test_sum", {"n": 100}),
        ("test_join", {"group": "text"}),
        ("test_join", {}),
    ]
    assert {(m.unit, m.direction) for m in metrics} == {("s", "lower")}
    assert said[0] == ParsedJob(kind="benchmark")
    assert errors(said) == warnings(said) == []


def test_two_functions_of_one_name_stay_apart(tmp_path):
    document = json.loads(REAL)
    document["benchmarks"][2]["group"] = None
    names = [m.name for m in of_kind(read(tmp_path, document), ParsedMetric)]
    assert names == ["test_sum", "test_sum", "test_join", "test_c.py::test_join"]


def test_the_machine():
    (environment,) = of_kind(DIALECT.read(foreign("pytest-benchmark.json")), ParsedEnvironment)
    assert environment.facts["python"] == "3.11.7"
    assert environment.facts["machine"]["hostname"] == "builder"
    assert environment.facts["machine"]["os"] == "Linux"


def test_without_rounds_one_sample_and_a_word_about_it():
    said = list(DIALECT.read(foreign("pytest-benchmark-without-rounds.json")))
    metrics = of_kind(said, ParsedMetric)
    assert [len(m.samples) for m in metrics] == [1, 1, 1, 1]
    assert "one sample is kept, the median of 5" in warnings(said)[0]


def test_a_version_is_told_and_a_commit_is_none(tmp_path):
    document = benchmark(data=[0.1])
    document["commit_info"] = {"id": "abc", "project": "p", "dirty": True}
    said = read(tmp_path, document)
    assert of_kind(said, ParsedVersion) == []
    assert "uncommitted changes" in warnings(said)[0]
    document["commit_info"] = {"project": "p", "version": "v1.2.3"}
    assert of_kind(read(tmp_path, document), ParsedVersion) == [ParsedVersion("p", "1.2.3")]


@pytest.mark.parametrize(
    ("stats", "samples", "word"),
    [
        ({"data": [1, float("nan"), "x", -1, 2]}, (1.0, 2.0), "3 of its rounds are no durations"),
        ({"data": "no"}, None, "holds no measurement"),
        ({"median": 3, "rounds": 9}, (3.0,), "the median of 9"),
    ],
)
def test_odd_statistics(tmp_path, stats, samples, word):
    said = read(tmp_path, benchmark(**stats))
    metrics = of_kind(said, ParsedMetric)
    assert (metrics[0].samples if metrics else None) == samples
    assert word in " ".join([*warnings(said), *errors(said)])


def test_of_too_many_rounds_evenly_spaced_ones_are_kept(tmp_path):
    said = read(tmp_path, benchmark(data=list(range(2 * MOST_SAMPLES))))
    (metric,) = of_kind(said, ParsedMetric)
    assert len(metric.samples) == MOST_SAMPLES
    assert metric.samples[-1] == 2 * MOST_SAMPLES - 2
    assert "evenly spaced" in warnings(said)[0]


def test_a_torn_file_keeps_what_came(tmp_path):
    cut = REAL.index(b'"fullname": "test_b.py::test_join"')
    said = read(tmp_path, REAL[:cut])
    assert len(of_kind(said, ParsedMetric)) == 2
    assert "torn" in errors(said)[-1]
    assert of_kind(said, ParsedEnd) == []
