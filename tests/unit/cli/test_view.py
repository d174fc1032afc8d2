"""What a run looks like on a terminal: whole pictures, and what holds for every one of them."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from orchestrator.cli.safe_text import log_line
from orchestrator.cli.view.glyphs import tally
from orchestrator.cli.view.live_run import LogTail, picture, summary
from orchestrator.cli.view.rows import bar, job_left_s, run_left_s
from orchestrator.client.transport import read
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs
from tests.unit.cli.golden import assert_golden

NOTE = f"Ctrl-C: leave it running · seatrial cancel {runs.RUN_ID}"
TAIL = LogTail("gcp-l4", [f"suites/test_moe.py::test_line_{n} PASSED" for n in range(6)])
HOSTILE = [
    "test_pipe[a|b|c]", "test_newline[one\ntwo]", "test_return[12%\r100%]",
    "test_colour[\x1b[31;1mred\x1b[0m]", "test_title[\x1b]0;owned\x07]",
    "test_clear[\x1b[2J\x1b[H]", "test_rtl[\u202egnp.exe]", "test_emoji[👩‍👩‍👧‍👦 🚢 ✅️]",
    "test_wide[全角文字テスト全角文字テスト全角文字テスト全角文字テスト]",
    "test_markup[[bold red]x[/bold red]]",
    "test_nul[\x00\x07\x9b]", "test_long[" + "x" * 5000 + "]",
]  # fmt: skip


def drawn(image: Text, width: int, height: int = 100) -> str:
    """What a terminal without colours would get."""
    out = io.StringIO()
    Console(file=out, width=width, height=height, no_color=True, emoji=False).print(image)
    return out.getvalue()


def shown(run: runs.Json, width: int, height: int, tail: LogTail = TAIL) -> str:
    image = picture(
        read(RunResponse, run), tail, now=runs.NOW, width=width, height=height, note=NOTE
    )
    return drawn(image, width, height)


def hostile() -> runs.Json:
    """Every text that a machine or a payload can choose is hostile."""
    evil = HOSTILE[1] + HOSTILE[3] + HOSTILE[5]
    cells = [
        runs.cell(
            f"c{number}",
            "running",
            detail=evil,
            reason=evil,
            jobs=[runs.going("moe", current=name), runs.job("bad", outcome="failed", detail=evil)],
        )
        for number, name in enumerate(HOSTILE[:4])
    ]
    return runs.run(*cells, matrix=evil, subject={"name": evil, "version": evil})


def many(number: int) -> runs.Json:
    kinds = [
        lambda n: runs.cell(f"p{n}", "done", outcome="passed", jobs=[runs.passed("moe")]),
        lambda n: runs.cell(f"p{n}", "running", jobs=[runs.going("moe"), runs.job("later")]),
        lambda n: runs.cell(f"p{n}", jobs=[runs.job("moe")]),
        lambda n: runs.cell(
            f"p{n}",
            "done",
            outcome="errored",
            reason="lost",
            detail="the machine went away",
            jobs=[runs.passed("moe"), runs.job("later", outcome="not_run", reason="lost")],
        ),
    ]
    return runs.run(*(kinds[n % 4](n) for n in range(number)))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12)])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("typical", runs.typical),
        ("hostile", hostile),
        ("eight", lambda: many(8)),
        ("sixty", lambda: many(60)),
    ],
)
def test_the_picture_is_the_one_that_was_looked_at(
    name: str, make: Any, width: int, height: int
) -> None:
    assert_golden(f"{name}-{width}x{height}.txt", shown(make(), width, height))


def metric() -> runs.Json:
    plain = {"seq": 1, "job": "bench", "name": "t", "samples": [1.0], "unit": "s"}
    return plain | {"direction": "lower"}


def test_what_stays_is_the_one_that_was_looked_at() -> None:
    failed = {"job": "demo", "name": "a", "outcome": "failed"}
    over = runs.run(
        runs.cell("local-cpu", "done", outcome="passed", jobs=[runs.passed("moe")]),
        runs.cell(
            "gcp-l4",
            "done",
            outcome="failed",
            jobs=[
                runs.going("moe", outcome="failed", duration_s=61.5, detail="1 failed, 17 missing"),
                runs.checked("demo", outcome="failed", checks=[failed]),
                runs.checked("bench", checks=[], metrics=[metric()], degraded="no AMP"),
            ],
        ),
        state="finished",
        outcome="failed",
        finished_at=runs.at(90),
    )
    image = summary(read(RunResponse, over), now=runs.NOW, width=80)
    assert_golden("finished.txt", drawn(image, 80))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_machine_can_move_the_cursor_or_break_a_line(name: str) -> None:
    run = runs.run(runs.cell("c", "running", jobs=[runs.going("moe", current=name)], detail=name))
    tail = LogTail("c", [log_line(name)])
    text = shown(run, 80, 24, tail)
    lines = text.split("\n")
    assert len(lines) == 25
    assert lines[-1] == ""
    assert all(c == "\n" or c.isprintable() for c in text)
    assert all(cell_len(line) <= 80 for line in lines)


cells_of_any_kind = st.builds(many, st.integers(min_value=0, max_value=30))


@settings(max_examples=60)
@given(
    run=cells_of_any_kind,
    width=st.integers(min_value=20, max_value=200),
    height=st.integers(min_value=5, max_value=70),
)
def test_every_picture_fits_its_terminal_exactly(run: runs.Json, width: int, height: int) -> None:
    lines = shown(run, width, height).split("\n")
    assert len(lines) == height + 1
    assert all(cell_len(line) <= width for line in lines)


def test_the_running_cells_come_first_when_not_all_fit() -> None:
    text = shown(many(60), 80, 24)
    assert "… and " in text
    assert "p1  " in text
    assert "errored" not in text


@given(
    figures=st.lists(st.integers(min_value=0, max_value=3000), min_size=8, max_size=8),
    width=st.integers(min_value=8, max_value=60),
)
def test_a_bar_is_as_wide_as_asked_and_hides_no_failure(figures: list[int], width: int) -> None:
    counts = Counts(*figures)
    line = bar(counts, width)
    assert line.cell_len == width
    styles = {str(span.style) for span in line.spans if span.end > span.start}
    assert ("bold red" in styles) == bool(counts.failed)
    if counts.missing or not counts.collected:
        assert line.plain.endswith("─")
    else:
        assert "─" not in line.plain


def test_the_time_left_follows_the_pace_of_the_tests() -> None:
    run = read(
        RunResponse,
        runs.run(runs.cell("c", "running", jobs=[runs.going("moe", started_at=runs.at(38))])),
    )
    job = run.cells[0].jobs[0]
    # 31 of 48 tests in 62 s: two seconds each, seventeen to go.
    assert job_left_s(job, runs.NOW) == pytest.approx(34)
    assert run_left_s(run, runs.NOW) == pytest.approx(34)


@pytest.mark.parametrize(
    "jobs",
    [
        [runs.job("moe", started_at=runs.at(0), counts=runs.counts(passed=2, missing=9))],
        [runs.going("moe", started_at=runs.at(99))],
        [runs.job("moe", started_at=runs.at(0), counts=runs.counts(passed=9))],
        [runs.job("moe", started_at=runs.at(0), counts=runs.counts(passed=900, missing=1))],
        [runs.going("moe"), runs.job("later")],
        [runs.job("demo", kind="demo", started_at=runs.at(0))],
    ],
)
def test_no_time_is_promised_without_a_reason(jobs: list[runs.Json]) -> None:
    run = read(RunResponse, runs.run(runs.cell("c", "running", jobs=jobs)))
    assert run_left_s(run, runs.NOW) is None


def test_a_clock_that_is_behind_shows_no_negative_time() -> None:
    early = runs.LAUNCHED - timedelta(hours=1)
    image = picture(read(RunResponse, runs.typical()), TAIL, now=early, width=80, height=24)
    assert "-" not in drawn(image, 80).splitlines()[1]


def test_counts_name_the_tests_that_passed_on_retry() -> None:
    assert tally(Counts(passed=21, skipped=1), retried=2).plain == "21 ✓  (2 ≈ flaky)  1 ⊘"
    assert tally(Counts(passed=21)).plain == "21 ✓"
