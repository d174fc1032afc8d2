"""What `show` prints of metrics."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from orchestrator.cli.view.metrics import SHOWN_PER_JOB, metrics
from orchestrator.client.transport import read
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs

Json = dict[str, Any]


def metric(name: str, *samples: float, unit: str = "ms", **given: Any) -> Json:
    plain = {"seq": 1, "job": "bench", "name": name, "samples": list(samples), "unit": unit}
    return plain | {"direction": "lower"} | given


def shown(*cells: list[Json]) -> list[str]:
    """The lines about runs whose cells have one job each, with these metrics."""
    return lines_of(*(runs.job("bench", outcome="passed", metrics=found) for found in cells))


def lines_of(*jobs: Json) -> list[str]:
    """The lines about runs whose cells have one of these jobs each."""
    made = [runs.cell(f"cell-{n}", "done", jobs=[job]) for n, job in enumerate(jobs)]
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


def test_parameters_that_differ_tell_metrics_apart_and_others_are_not_repeated() -> None:
    found = [metric("t", 1.0, params={"batch": n, "dtype": "fp32", "seed": 1}) for n in (8, 16)]
    assert shown([*found, metric("u", 3.0, params={"batch": 8})])[1:] == [
        "t (batch=8) 1 ms n = 1 bench",
        "t (batch=16) 1 ms n = 1 bench",
        "u 3 ms n = 1 bench",
    ]


def test_a_paired_benchmark_stands_beside_its_baseline() -> None:
    values = {"subject": (11.0, 22.0), "baseline": (10.0, 20.0)}
    turns = [
        metric("t", value, params={"batch": 8}, arm=arm, turn=2 * pair + (arm == "baseline"))
        for arm, both in values.items()
        for pair, value in enumerate(both)
    ]
    assert lines_of(runs.job("bench", outcome="passed", turns=turns)) == [
        "paired with the baseline (median)",
        "t 16.5 ms baseline 15 10.0% slower 2 pairs bench",
    ]
    fewer = [{**turn, "direction": "higher"} for turn in turns]
    assert "9.1% faster" in lines_of(runs.job("bench", outcome="passed", turns=fewer))[1]


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
