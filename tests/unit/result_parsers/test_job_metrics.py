"""What a job's own files and output may hold: bounded, and whatever is left out is said."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.job_metrics import JobMetrics
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import ParsedItem, ParsedMetric, Provenance
from runners.agent.event_lines import BadLineError, understand

METRIC = {"metric": "m", "samples": [1.5], "unit": "ms", "direction": "lower", "params": {}}
READ = JobMetrics(FileDialects())
NOTHING = "it holds no figure that can be read"


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("b.json", '[{"name": "b", "value": 1}, {"name": "a", "value": NaN}]', "'a' has no figure"),
        ("b.json", '[{"name": "a", "value": NaN}]', NOTHING),
        ("b.json", '[{"name": "a", "value": 1e999}]', "'a' has no figure, or one"),
        ("b.json", '[{"name": "a", "value": 1e300}]', "a sample is not smaller than 1e+300"),
        ("b.json", '[{"unit": "ms", "value": 1, "name": ""}]', "has no name"),
        ("output", '{"metric": "a", "value": -Infinity}\n', "'a' has no figure"),
        ("output", '{"metric": "a", "value": -1e301}\n', "a sample is not smaller than 1e+300"),
        ("output", f'{{"metric": "a", "value": {"9" * 5000}}}\n', "a line is no JSON that can"),
        ("output", f'{{"metric": "a", "x": {nested(30_000)}, "value": 1}}\n', "a line is no JSON"),
        ("output", f'{{"metric": "a", "x": {nested(700)}, "value": []}}\n', "'a' has no figure"),
        ("output", '{"metric": "a", "value": 1, "value": 2}\n', "a key occurs twice"),
        ("output", '{"metric": "a", "samples": [1, 2\n', "a line is no JSON"),
        ("output", f'{{"metric": "a", "samples": [{"1, " * 40_000}1]}}\n', "a line is no JSON"),
        ("output", "a: nan ms\nb: 5 ms\n", "is not read: 'a: nan ms'"),
        ("output", "b: 5 ms\na: infms/batch\n", "is not read: 'a: infms/batch'"),
        ("output", "b: 5 ms\na: -7.79 ms\n", "a figure is negative, or no number, and is not"),
        ("output", "b: 5 ms\nSeq= 64: Flex=nan ms, Plain=0.79ms\n", "is not read: 'Seq= 64"),
        ("output", "a\n" * 2_000_001, "only its first 2,000,000 lines were read"),
        ("b.json", " " * (64 * 1024 * 1024 + 1), "only its first 64 MiB were read"),
        ("output", "t: 5 ms\n" * 10_001, "more than 10000 figures: the rest is left out"),
    ],
)
def test_what_is_left_out_is_said(name: str, text: str, words: str) -> None:
    _, problems = READ(name, [text.encode()])
    assert words in problems[0]


@pytest.mark.parametrize(
    "line",
    ["loss: nan", "inference: 6 ms", "range: 5-7 ms", "nan_count: 6 ms", "a - 6 ms", "-1 is odd"],
)
def test_a_line_without_such_a_figure_is_no_problem(line: str) -> None:
    assert READ("output", [f"b: 5 ms\n{line}\n".encode()])[1] == ()


def test_a_document_whose_end_cannot_be_read_is_read_until_there() -> None:
    good = '{"name": "a", "value": 1}'
    found, problems = READ("b.json", [f'[{good}, {{"x": {nested(5_000)}}}]'.encode()])
    assert [metric.name for metric in found] == ["a"]
    torn = "torn: it is nested deeper than 64 levels; what came before it is kept"
    assert problems == ("of its metrics one with the keys ['x'] has no name", torn)


def line_of(metric: dict[str, object]) -> bytes:
    return json.dumps(metric).encode() + b"\n"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"metric": "m" * 500},
        {"metric": "m" * 501},
        {"unit": "u" * 500},
        {"unit": "u" * 501},
        {"samples": [1e299]},
        {"samples": [-1e300]},
        {"samples": []},
        {"samples": [True]},
        {"params": {f"p{n}": n for n in range(100)}},
        {"params": {f"p{n}": n for n in range(101)}},
        {"params": {"p": 2**63 - 1}},
        {"params": {"p": -(2**63)}},
    ],
    ids=str,
)
def test_the_limits_are_those_of_the_agent(changed: dict[str, object]) -> None:
    metric = METRIC | changed
    try:
        understand(metric)
    except BadLineError:
        taken = False
    else:
        taken = True
    found, problems = READ("output", [line_of(metric)])
    assert (len(found), not problems) == (taken, taken)


@pytest.mark.parametrize("count", [100_000, 100_001])
def test_the_limit_of_samples_is_that_of_the_agent(count: int) -> None:
    metric = METRIC | {"samples": [1] * count}
    found, problems = READ("b.json", [json.dumps([metric]).encode()])
    if count == 100_000:
        assert understand(metric)[0] == "metric"
        assert len(found[0].samples) == count
        return
    with pytest.raises(BadLineError, match="100001 samples"):
        understand(metric)
    assert problems == (
        "the metric 'm' is left out: 100001 samples are more than 100000",
        NOTHING,
    )


class Saying:
    """A dialect that says what a test wants, or fails."""

    name = "saying"
    version = 1
    provenance = Provenance.STRUCTURED

    def __init__(self, *said: ParsedItem | Exception) -> None:
        self.items = said

    def match(self, _artifact: Artifact) -> float:
        return 1.0

    def read(self, _artifact: Artifact) -> Iterator[ParsedItem]:
        for one in self.items:
            if isinstance(one, Exception):
                raise one
            yield one


def metrics_of(*said: ParsedItem | Exception) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
    return JobMetrics(FileDialects([Saying(*said)]))("x", [b"x"])


@pytest.mark.parametrize(
    ("samples", "most", "words"),
    [(1, 50_000, "50,000 metrics"), (100_000, 10, "1,000,000 samples")],
)
def test_a_file_holds_only_so_many_metrics(samples: int, most: int, words: str) -> None:
    one = ParsedMetric("m", (1.0,) * samples, "ms", "lower")
    assert [len(part) for part in metrics_of(*[one] * most)] == [most, 0]
    found, problems = metrics_of(*[one] * (most + 2))
    assert len(found) == most
    assert problems == (f"more than {words}: the rest of it is not read",)


def test_a_file_of_nothing_but_mistakes_is_not_read_to_its_end() -> None:
    bad = ParsedMetric("n" * 501, (1.0,), "ms", "lower")
    _, problems = metrics_of(*[bad] * 100_000)
    assert len(problems) == 102
    assert problems[-2:] == ("more than 100 problems: the rest of it is not read", NOTHING)


def test_a_reader_that_fails_keeps_no_cell_from_its_end() -> None:
    good = ParsedMetric("m", (1.0,), "ms", "lower")
    found, problems = metrics_of(good, ZeroDivisionError("no samples"))
    assert found == (good,)
    assert problems == ("its reader failed on it (ZeroDivisionError: no samples)",)


@given(st.sampled_from(["output", "b.json"]), st.binary(max_size=300))
def test_any_bytes_are_read(name: str, data: bytes) -> None:
    found, problems = READ(name, [b'[{"name": "a", "value": 1}, ' + data])
    assert found or problems
