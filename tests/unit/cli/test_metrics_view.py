"""What `show` prints of metrics."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from orchestrator.cli.read_answers import read
from orchestrator.cli.view.metrics import SHOWN_PER_JOB, metrics
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs

Json = dict[str, Any]


def metric(name: str, *samples: float, unit: str = "ms", **given: Any) -> Json:
    plain = {"seq": 1, "job": "bench", "name": name, "samples": list(samples), "unit": unit}
    return plain | {"direction": "lower"} | given


def shown(*cells: list[Json]) -> list[str]:
    """The lines about runs whose cells have one job each, with these metrics."""
    made = [
        runs.cell(f"cell-{n}", "done", jobs=[runs.job("bench", outcome="passed", metrics=found)])
        for n, found in enumerate(cells)
    ]
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(metrics(read(RunResponse, runs.run(*made))) or "nothing")
    return [" ".join(line.split()) for line in captured.get().splitlines() if line.strip()]


def test_each_metric_has_its_median_unit_and_number_of_samples() -> None:
    found = [metric("latency", 1.25, 1.75, 9.0), metric("rate", 12_345.6, unit="tokens/s")]
    assert shown(found) == [
        "metrics (median)",
        "latency 1.75 ms n = 3 bench",
        "rate 12,346 tokens/s n = 1 bench",
    ]


def test_a_run_of_several_cells_names_them() -> None:
    assert shown([metric("t", 1.0)], [metric("t", 2.0)])[1:] == [
        "t 1 ms n = 1 bench cell-0",
        "t 2 ms n = 1 bench cell-1",
    ]


def test_parameters_tell_metrics_apart_and_turns_of_an_arm_are_one() -> None:
    found = [
        metric("t", 1.0, params={"batch": 8}, arm="subject", turn=0),
        metric("t", 5.0, params={"batch": 8}, arm="baseline", turn=1),
        metric("t", 3.0, params={"batch": 8}, arm="subject", turn=3),
    ]
    assert shown(found)[1:] == [
        "t (batch=8, subject) 2 ms n = 2 bench",
        "t (batch=8, baseline) 5 ms n = 1 bench",
    ]


def test_what_is_left_out_is_counted() -> None:
    many = [metric(f"t{n:02}", 1.0) for n in range(SHOWN_PER_JOB + 3)]
    lines = shown(many, [metric("other", 1.0)])
    assert lines[SHOWN_PER_JOB].startswith("t09 ")
    assert lines[SHOWN_PER_JOB + 1].startswith("other ")
    assert lines[-1] == "and 3 more metrics; --json has them all"


def test_no_metrics_are_no_block_and_no_text_moves_the_cursor() -> None:
    assert shown([]) == ["nothing"]
    (_, line) = shown([metric("a\x1b[31m\nb", 1.0)])
    assert "\x1b" not in line
