"""How wide the output is, and how much is told beside it."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

import orchestrator
from orchestrator.cli import connect, session
from orchestrator.cli.commands import options
from orchestrator.cli.safe_text import NATURAL
from orchestrator.domain.units import size
from tests.unit.cli import in_process, runs
from tests.unit.cli.fake_controller import Answer, FakeController, Request
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


def test_the_version_is_all_that_is_printed(cli: Cli) -> None:
    assert cli("--version") == 0
    assert cli.out == f"seatrial {orchestrator.__version__}\n"


def test_quiet_leaves_data_and_errors(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", "/api/v1/runs"] = Answer.of({"items": [], "next": None})
    assert cli("runs") == 0
    assert cli.err.startswith("No run yet")
    assert cli("-q", "runs") == 0
    assert cli.err == ""
    assert cli("--quiet", "show", "a/b") == 2
    assert cli.err.startswith("there is no run 'a/b'")


@pytest.mark.parametrize(
    ("command", "path"), [(["runs"], "/api/v1/runs"), (["audit", "list"], "/api/v1/audit")]
)
@pytest.mark.parametrize("answer", [{}, {"items": None}, {"items": "none"}, {"items": ["one"]}])
def test_a_malformed_list_is_no_empty_one(
    cli: Cli, controller: FakeController, command: list[str], path: str, answer: object
) -> None:
    controller.answers["GET", path] = Answer.of(answer)
    for form in ([], ["--json"]):
        assert cli(*command, *form) == 5, cli.out
        assert "the controller's answer is not understood: items" in cli.err


def test_pages_of_a_list_are_followed_until_enough(cli: Cli, controller: FakeController) -> None:
    def page(request: Request) -> Answer:
        first = int(request.query.get("before", ["1000"])[0]) - 1
        sizes = range(first, first - int(request.query["limit"][0]), -1)
        return Answer.of({"items": [{"number": one} for one in sizes], "next": sizes[-1]})

    controller.answers["GET", "/api/v1/audit"] = page
    assert cli("audit", "list", "--limit", "450", "--json") == 0
    assert [one["number"] for one in json.loads(cli.out)] == list(range(999, 549, -1))
    sent = controller.sent("GET", "/api/v1/audit")
    assert [one.query["limit"][0] for one in sent] == ["200", "200", "50"]


def test_an_empty_audit_log_is_no_error(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", "/api/v1/audit"] = Answer.of({"items": [], "next": None})
    assert cli("audit", "list") == 0
    assert cli.err == "No entry yet: nothing was changed.\n"
    assert cli("audit", "list", "--actor", "ann") == 0
    assert cli.err.endswith("No entry is like that; `seatrial audit list` lists all of them.\n")


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


def completed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """Complete the id of a run, in a shell."""
    monkeypatch.setenv("_SEATRIAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "seatrial show 01jq")
    monkeypatch.setenv("COMP_CWORD", "2")
    return cli(), cli.out.strip(), cli.err


def test_completing_does_not_wait_for_the_look_up_of_a_name(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        over.wait()
        raise OSError("it was given up")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(options, "_NAME_AND_ANSWER_S", 0.1)
    cli.wiring.settings.url = "http://controller.example"
    assert completed(cli, monkeypatch) == (0, "", "")
    over.set()


@pytest.mark.parametrize("is_embedded", [True, False], ids=["file", "server"])
def test_completing_starts_no_controller_and_is_silent(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_embedded: bool
) -> None:
    started: list[Path] = []
    monkeypatch.setattr(connect, "_spawn", lambda log: started.append(log) or Mock())
    monkeypatch.setattr(type(cli.wiring), "is_embedded", is_embedded)
    cli.wiring.settings.home = tmp_path / "other"
    for held_by in (None, 7):
        cli.wiring.held_by = held_by
        assert completed(cli, monkeypatch) == (0, "", "")
    assert started == []


def test_completing_asks_once(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.answers["GET", "/api/v1/runs"] = Answer.problem(503, "busy")
    assert completed(cli, monkeypatch) == (0, "", "")
    assert len(controller.sent("GET", "/api/v1/runs")) == 1


def test_completing_does_not_wait_for_an_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "AT_ONCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cli.wiring.settings.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert completed(cli, monkeypatch) == (0, "", "")


@pytest.mark.parametrize(
    ("columns", "width"), [(None, NATURAL), ("60", 60), ("0", NATURAL), ("wide", NATURAL)]
)
def test_the_width_of_a_pipe_is_not_that_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((40, 20)))
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert session._console(io.StringIO()).width == width


@pytest.mark.parametrize(
    ("facts", "state", "code", "says"),
    [
        ({"held_by": None}, "finished", 0, "No controller runs in"),
        ({"held_by": None}, "running", 0, f"1 run waits ({runs.RUN_ID}): the next command that"),
        ({"held_by": 7}, "finished", 2, "process 7 is `seatrial serve`: end it where it was"),
        ({"held_by": 7, "is_serving": False}, "finished", 0, "(process 7) has ended."),
        ({"held_by": 7, "is_serving": False}, "finished", 0, "Waiting until process 7 has ended"),
        ({"held_by": 7, "is_serving": False}, "running", 1, f"process 7 works on {runs.RUN_ID}"),
        ({"held_by": 7, "is_serving": False, "is_busy": True}, "finished", 1, "still at work"),
    ],
)
def test_stop_ends_an_idle_background_controller_alone(
    cli: Cli, controller: FakeController, facts: dict[str, object], state: str, code: int, says: str
) -> None:
    for name, value in facts.items():
        setattr(cli.wiring, name, value)
    listed = {"items": [runs.run(state=state)], "next": None}
    controller.answers["GET", "/api/v1/runs"] = Answer.of(listed)
    assert cli("stop") == code
    assert says in cli.err
    has_ended = cli.wiring.held_by is None
    assert has_ended is (code == 0)


def test_stop_ends_no_controller_of_this_computer_for_another_one(
    cli: Cli,
) -> None:
    cli.wiring.settings.url = "http://127.0.0.1:9"
    cli.wiring.held_by, cli.wiring.is_serving = 7, False
    assert cli("stop") == 2
    assert "SEATRIAL_URL is set" in cli.err
    assert cli.wiring.held_by == 7


def test_the_files_of_a_payload_are_listed_without_a_launch(cli: Cli) -> None:
    folder = cli.folder / "pay"
    (folder / "gate.yaml").write_text("a policy")
    assert cli("payload", str(folder)) == 0
    names = [line.split()[-1] for line in cli.out.splitlines()]
    assert names == ["payload.toml", "gate.yaml", "tests/test_a.py"]
    shipped = cli.wiring.pack(folder, cli.folder).path.stat().st_size
    assert cli.err.startswith(f"3 files, {size(shipped)} to upload, sha256 ")
    text = (folder / "payload.toml").read_text()
    (folder / "payload.toml").write_text('exclude = ["gate.yaml"]\n' + text)
    assert cli("payload", str(folder)) == 0
    assert "gate.yaml" not in cli.out
    assert cli("payload", str(cli.folder / "none")) == 2
