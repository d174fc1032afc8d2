"""db prune, against a controller of the tests' own."""

from __future__ import annotations

import io
import json

import pytest

from orchestrator.cli.session import Session
from orchestrator.client.transport import Client
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController, Request
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures

PRUNE = "/api/v1/prune"
REPORT = {
    "at": "2026-03-01T12:00:00Z",
    "dry_run": True,
    "is_complete": True,
    "lines": [
        {
            "what": "log chunks",
            "rows": 1200,
            "size_bytes": 5_000_000,
            "rule": "kept for 180 days (X)",
        },
        {"what": "flows", "rows": 3, "size_bytes": 0, "rule": "kept for 14 days (Y)"},
    ],
    "kept": {"a machine of it is not proven gone": 2},
    "remarks": ["each prunes its own home"],
    "last_at": None,
    "rows": 1203,
    "size_bytes": 5_000_000,
}


@pytest.fixture(autouse=True)
def answers(controller: FakeController) -> None:
    """Two calls until everything is removed."""
    controller.answers["GET", PRUNE] = Answer.of(REPORT)

    def remove(_: Request) -> Answer:
        is_first = len(controller.sent("POST", PRUNE)) == 1
        return Answer.of(REPORT | {"dry_run": False, "is_complete": not is_first})

    controller.answers["POST", PRUNE] = remove


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--json"], ["--dry-run", "--json"]])
def test_nothing_is_removed_unless_somebody_says_so(
    cli: Cli, controller: FakeController, options: list[str]
) -> None:
    assert cli("db", "prune", *options, "--older-than", "30") == 0
    [request] = controller.sent("GET", PRUNE)
    assert request.query == {"days": ["30"]}
    assert controller.sent("POST", PRUNE) == []
    if "--json" in options:
        assert json.loads(cli.out) == REPORT
        return
    rows = [line.split() for line in cli.out.splitlines()]
    assert rows[0] == ["what", "rows", "bytes", "rule"]
    assert rows[1] == ["log", "chunks", "1,200", "5.0", "MB", "kept", "for", "180", "days", "(X)"]
    assert rows[2] == ["flows", "3", "–", "kept", "for", "14", "days", "(Y)"]
    assert "Kept all the same: 2 runs, as a machine of it is not proven gone." in cli.err
    assert "Each prunes its own home." in cli.err
    assert ("with -y, the same command does it" in cli.err) == (not options)


def test_json_asks_nobody_and_says_that_nothing_was_removed(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_terminal(monkeypatch, "y\n")
    assert cli("db", "prune", "--json") == 0
    assert json.loads(cli.out) == REPORT
    assert "Nothing was removed: with -y, the same command does it." in cli.err
    assert controller.sent("POST", PRUNE) == []


@pytest.mark.parametrize("answer", ["n\n", ""], ids=["no", "Ctrl-C or the end of the input"])
def test_whoever_does_not_agree_gets_the_same_exit_code(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    at_a_terminal(monkeypatch, answer)
    assert cli("db", "prune") == 2
    assert cli.err.splitlines()[-1].endswith("Nothing was removed.")
    assert controller.sent("POST", PRUNE) == []


def test_whoever_agrees_at_a_terminal_removes_it(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_terminal(monkeypatch, "y\n")
    assert cli("db", "prune") == 0
    assert len(controller.sent("POST", PRUNE)) == 2


def test_an_interrupt_says_that_the_controller_stops_too(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "post", interrupted)
    assert cli("db", "prune", "-y") == 130
    assert "the controller has stopped pruning too" in cli.err


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """As if a person sat there, who answers questions so."""
    monkeypatch.setattr(Session, "is_interactive", True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))


def test_it_goes_on_until_nothing_is_left(cli: Cli, controller: FakeController) -> None:
    assert cli("db", "prune", "--yes", "--older-than", "30") == 0
    assert [one.json for one in controller.sent("POST", PRUNE)] == [{"days": 30}] * 2
    assert cli.out == ""
    assert "so far: 1,203 rows and files, 5.0 MB" in cli.err
    assert "Removed: 2,406 rows and files, 10.0 MB." in cli.err


def test_json_has_the_sums_of_all_calls(cli: Cli, controller: FakeController) -> None:
    assert cli("db", "prune", "-y", "--json") == 0
    assert [one.json for one in controller.sent("POST", PRUNE)] == [{}] * 2
    told = json.loads(cli.out)
    assert (told["rows"], told["size_bytes"], told["is_complete"]) == (2406, 10_000_000, True)
    assert [line["rows"] for line in told["lines"]] == [2400, 6]


def test_contradictions_are_refused(cli: Cli, controller: FakeController) -> None:
    assert cli("db", "prune", "--dry-run", "--yes") == 2
    assert cli("db", "prune", "--older-than", "0") == 2
    assert controller.requests == []
