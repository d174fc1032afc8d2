"""How wide the output is, and how much is told beside it."""

from __future__ import annotations

import re

import pytest

from tests.unit.cli import in_process, runs
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
LONG = "a-matrix-with-a-long-name-" * 9


@pytest.fixture(autouse=True)
def listed(controller: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    items = [runs.typical() | {"matrix": name} for name in (LONG, "m")]
    controller.answers["GET", "/api/v1/runs"] = Answer.of({"items": items, "next": None})


@pytest.mark.parametrize("command", [["runs"], ["show"]])
def test_a_pipe_has_whole_lines_that_nothing_fills_up(cli: Cli, command: list[str]) -> None:
    assert cli(*command) == 0
    lines = cli.out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    if command == ["runs"]:
        assert len(lines) == 3
        assert LONG in lines[1]
    else:
        assert max(map(len, lines)) < 110


def test_columns_is_the_width_where_it_is_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert cli("runs") == 0
    assert max(map(len, cli.out.splitlines())) <= 60
    assert LONG not in cli.out


def test_quiet_leaves_data_and_errors(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", "/api/v1/runs"] = Answer.of({"items": [], "next": None})
    assert cli("runs") == 0
    assert cli.err.startswith("No run yet")
    assert cli("-q", "runs") == 0
    assert cli.err == ""
    assert cli("--quiet", "show", "a/b") == 2
    assert cli.err.startswith("there is no run 'a/b'")


def test_verbose_tells_every_answer(cli: Cli) -> None:
    assert cli("-v", "runs", "--json") == 0
    assert re.fullmatch(r"GET /runs: 200 in [0-9.]+ s\n", cli.err)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("seatrial show 01jq", [runs.RUN_ID]),
        ("seatrial show lat", ["latest"]),
        ("seatrial cancel zz", []),
    ],
)
def test_a_shell_completes_the_ids_of_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str, found: list[str]
) -> None:
    monkeypatch.setenv("_SEATRIAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "2")
    assert cli() == 0
    assert cli.out.split() == found
