"""The command line against a controller of the tests' own, over a real socket."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.adapters.ids import new_id
from orchestrator.bootstrap.reading import CommandWiring
from orchestrator.cli.app import main
from orchestrator.cli.wiring import DatabaseState, Packed, RefusedError
from orchestrator.domain.machine import ProviderTraits
from tests.unit.cli import runs
from tests.unit.cli.fake_controller import Answer, FakeController, Request, plan, serving

MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: release}
subject: {name: torchbridge, version: "0.4.40"}
payload: {path: pay}
platforms:
  - {id: local-cpu, provider: local}
jobs:
  - {select: "*", on: all}
"""
PAYLOAD = """\
schema = 1
name = "pay"
version = "1"
[[job]]
id = "moe"
kind = "suite"
pytest = ["tests"]
"""
ID = runs.RUN_ID
SHOWN = f"/api/v1/runs/{ID}"


@dataclass
class Environment:
    home: Path
    url: str | None = None
    token: None = None
    ci: bool = False


@dataclass
class TestWiring:
    """The real readers, and a cloud that costs money."""

    __test__ = False
    settings: Environment
    held_by: int | None = None
    served: list[dict[str, object]] = field(default_factory=list)
    clock = SystemClock()
    documents = FileDocuments()
    new_id = staticmethod(new_id)
    builtin_payload = Path(__file__).parents[2] / "payload"

    @property
    def traits(self) -> Mapping[str, ProviderTraits]:
        cloud = ProviderTraits("cloud", frozenset({"instance_type"}))
        return {**CommandWiring().traits, "cloud": cloud}

    def pack(self, source: Path, scratch: Path) -> Packed:
        return CommandWiring().pack(source, scratch)

    def control(self, **options: object) -> int:
        self.served.append(options)
        return 3

    def holder(self) -> int | None:
        return self.held_by

    def database(self, *, upgrade: bool) -> DatabaseState:
        if self.held_by:
            raise RefusedError("process 7 holds it; stop it first")
        return DatabaseState("sqlite:///app.db", "2" if upgrade else "1", "2")


@dataclass
class Cli:
    """Runs commands in this process and keeps what they wrote."""

    wiring: TestWiring
    folder: Path
    capture: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def __call__(self, *args: str) -> int:
        code = main(self.wiring, list(args))
        self.out, self.err = self.capture.readouterr()
        return code

    @property
    def matrix(self) -> Path:
        return self.folder / "release.yaml"


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    (tmp_path / "release.yaml").write_text(MATRIX)
    (tmp_path / "pay" / "tests").mkdir(parents=True)
    (tmp_path / "pay" / "payload.toml").write_text(PAYLOAD)
    # Nobody's terminal: a run of the tests by hand must not ask the person.
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return Cli(TestWiring(Environment(tmp_path / "home")), tmp_path, capsys)


@pytest.fixture
def controller(cli: Cli) -> Iterator[FakeController]:
    with serving(cli.wiring.settings.home, FakeController()) as fake:
        yield fake


def report_of(cli: Cli) -> Path:
    path = cli.wiring.settings.home / "runs" / ID / "report" / "SUMMARY.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# Report\n")
    return path


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("passed", 0),
        ("failed", 1),
        ("timed_out", 1),
        ("errored", 5),
        ("cancelled", 5),
        ("not_available", 5),
        ("something_new", 5),
    ],
)
@pytest.mark.parametrize("command", ["run", "watch", "rerun"])
def test_the_exit_code_is_the_outcome(
    cli: Cli, controller: FakeController, command: str, outcome: str, code: int
) -> None:
    report = report_of(cli)
    controller.finish(outcome)
    controller.answers["POST", f"{SHOWN}/rerun"] = Answer.of(controller.shown, 202)
    assert cli(command, str(cli.matrix) if command == "run" else ID) == code
    assert cli.out == f"report: {report}\n"


def test_what_run_prints_without_a_terminal(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    controller.tests = [{"nodeid": "tests/t.py::a\n[x]", "outcome": "failed", "message": "1 != 2"}]

    def happen(looks: int) -> None:
        if looks == 2:
            controller.finish("failed")

    controller.on_look = happen
    assert cli("run", str(cli.matrix)) == 1
    lines = [re.sub(r"^ *\d\S*( \d\S*)?  ", "TIME  ", line) for line in cli.err.splitlines()]
    start = lines.index("plan: 1 cell, 2 jobs, free")
    assert lines[start : start + 3] == [
        "plan: 1 cell, 2 jobs, free",
        f"run {ID}",
        "TIME  local-cpu moe: passed in 31s (48 passed)",
    ]
    assert "          gcp-l4 moe: failed tests/t.py::a↵[x]: 1 != 2" in lines
    assert lines[-1].endswith("run: failed (78 passed, 1 failed, 17 missing)")
    assert "\x1b" not in cli.err + cli.out


def test_run_uploads_what_is_not_known_and_sends_one_key(
    cli: Cli, controller: FakeController
) -> None:
    report_of(cli)
    controller.finish("passed")
    assert cli("run", str(cli.matrix)) == 0
    ((path, archive),) = controller.stored.items()
    digest = hashlib.sha256(archive).hexdigest()
    assert path == f"/api/v1/payloads/{digest}"
    launch = controller.sent("POST", "/api/v1/runs")[0]
    assert launch.json == {
        "matrix": MATRIX,
        "name": "release.yaml",
        "payload": digest,
        "subject": None,
    }
    assert launch.headers["Idempotency-Key"]
    assert cli("run", str(cli.matrix)) == 0
    assert len(controller.sent("PUT", path)) == 1


def test_a_launch_that_is_answered_with_busy_is_repeated_with_its_key(
    cli: Cli, controller: FakeController
) -> None:
    report_of(cli)
    controller.finish("passed")
    answers = iter([503, 409])

    def launch(request: Request) -> Answer:
        status = next(answers, 202)
        return Answer.of(controller.shown, status)

    controller.answers["POST", "/api/v1/runs"] = launch
    assert cli("run", str(cli.matrix)) == 0
    keys = [r.headers["Idempotency-Key"] for r in controller.sent("POST", "/api/v1/runs")]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("provider: local}", "provder: local}", "release.yaml:7:21: platforms.0.provder: "),
        ("provider: local}", "provider: locl}", "did you mean 'local'?"),
        ('"0.4.40"', "1.10", "release.yaml:4:39: subject.version: "),
        ("path: pay", "path: pai", "there is no "),
        ('"*"', '"nothing*"', "release.yaml:9:"),
    ],
)
def test_a_bad_matrix_is_refused_before_anything_is_sent(
    cli: Cli, controller: FakeController, old: str, new: str, said: str
) -> None:
    cli.matrix.write_text(MATRIX.replace(old, new))
    assert cli("run", str(cli.matrix)) == 2
    assert said in cli.err
    assert cli.out == ""
    assert controller.requests == []


def test_what_the_controller_refuses_is_located(cli: Cli, controller: FakeController) -> None:
    errors = [{"pointer": "/secrets/HF_TOKEN", "line": 4, "column": 9, "detail": "is not there"}]
    controller.answers["POST", "/api/v1/plan"] = Answer.problem(422, "no", errors=errors)
    assert cli("plan", str(cli.matrix)) == 2
    assert cli.err.splitlines()[-1] == f"{cli.matrix}:4:9: secrets.HF_TOKEN: is not there"


@pytest.mark.parametrize(
    ("status", "code"), [(400, 2), (401, 4), (403, 4), (404, 2), (409, 2), (422, 2), (500, 5)]
)
def test_refusals_have_their_exit_codes(
    cli: Cli, controller: FakeController, status: int, code: int
) -> None:
    controller.answers["GET", f"/api/v1/runs/{ID}"] = Answer.problem(status, "because")
    assert cli("show", ID) == code
    assert "because" in cli.err
    assert "Traceback" not in cli.err


def test_a_missing_matrix_names_its_neighbour(cli: Cli) -> None:
    assert cli("run", str(cli.folder / "relase.yaml")) == 2
    assert "did you mean 'release.yaml'?" in cli.err


def test_what_costs_money_is_not_rented_without_a_yes(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    controller.finish("passed")
    controller.answers["POST", "/api/v1/plan"] = Answer.of(plan("cloud", "1.25"))
    assert cli("run", str(cli.matrix)) == 2
    assert "say -y" in cli.err
    assert "$1.25" in cli.err
    assert controller.sent("POST", "/api/v1/runs") == []
    assert cli("run", "-y", str(cli.matrix)) == 0
    assert len(controller.sent("POST", "/api/v1/runs")) == 1


def test_detach_prints_the_id_and_leaves(cli: Cli, controller: FakeController) -> None:
    assert cli("run", "--detach", str(cli.matrix)) == 130
    assert cli.out == f"{ID}\n"
    assert f"seatrial watch {ID}" in cli.err
    assert cli("run", "--detach", "--json", str(cli.matrix)) == 130
    assert json.loads(cli.out)["id"] == ID


def test_waiting_too_long_is_told_apart(cli: Cli, controller: FakeController) -> None:
    assert cli("watch", ID, "--timeout", "0.01") == 7
    assert "goes on" in cli.err
    assert cli.out == ""


def test_json_is_what_the_controller_shows(cli: Cli, controller: FakeController) -> None:
    report_of(cli)
    assert cli("show", ID, "--json") == 0
    assert json.loads(cli.out) == controller.shown
    controller.finish("failed")
    assert cli("watch", ID, "--json") == 1
    assert json.loads(cli.out) == controller.shown


def test_runs_are_listed_page_by_page_without_their_cells(
    cli: Cli, controller: FakeController
) -> None:
    def page(request: Request) -> Answer:
        first = "before" not in request.query
        item = controller.shown | {"id": "new" if first else "old"}
        return Answer.of({"items": [item], "next": "c" if first else None})

    controller.answers["GET", "/api/v1/runs"] = page
    assert cli("runs", "--json") == 0
    listed = json.loads(cli.out)
    assert [run["id"] for run in listed] == ["new", "old"]
    assert all("cells" not in run for run in listed)
    assert cli("runs", "-n", "1") == 0
    assert cli.out.splitlines()[1].startswith("new")
    assert len(cli.out.splitlines()) == 2


def test_set_changes_the_document_that_is_sent(cli: Cli, controller: FakeController) -> None:
    assert cli("plan", str(cli.matrix), "--set", "local-cpu.optional=true", "--json") == 0
    sent = controller.sent("POST", "/api/v1/plan")[0].json["matrix"]
    assert sent["platforms"] == [{"id": "local-cpu", "provider": "local", "optional": True}]
    assert cli("plan", str(cli.matrix), "--set", "local-cpu.optinal=true") == 2
    assert "did you mean 'optional'?" in cli.err


@pytest.mark.parametrize(
    ("names", "code"), [(["a-1.whl"], 0), ([], 2), (["a-1.whl", "b-1.whl"], 2)]
)
def test_a_wheel_pattern_must_match_exactly_one(
    cli: Cli, controller: FakeController, names: list[str], code: int
) -> None:
    report_of(cli)
    controller.finish("passed")
    text = MATRIX.replace('"0.4.40"}', '"0.4.40", wheel: "dist/*.whl"}')
    cli.matrix.write_text(text)
    (cli.folder / "dist").mkdir()
    for name in names:
        (cli.folder / "dist" / name).write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert cli("run", str(cli.matrix)) == code
    if code:
        assert "must match exactly one file" in cli.err
    else:
        assert controller.sent("POST", "/api/v1/runs")[0].json["subject"] == digest


def test_logs_are_the_bytes_that_came(cli: Cli, controller: FakeController) -> None:
    controller.log = "one\nzwölf\x1b[31m\n torn".encode()
    assert cli("logs", ID, "--cell", "local-cpu") == 0
    assert cli.out == "one\nzwölf\x1b[31m\n torn\n"
    assert cli("logs", ID) == 0
    assert "[gcp-l4] one" in cli.out
    assert cli("logs", ID, "--cell", "gcp-l") == 2
    assert "did you mean 'gcp-l4'?" in cli.err


def test_following_a_log_ends_with_the_run(cli: Cli, controller: FakeController) -> None:
    controller.log = b"first\n"

    def happen(looks: int) -> None:
        if looks == 3:
            controller.log += b"second\nlast"
            controller.finish("passed")

    controller.on_look = happen
    assert cli("logs", "-f", ID, "--cell", "gcp-l4") == 0
    assert cli.out == "first\nsecond\nlast\n"


def test_cancel_asks_once_and_leaves_a_finished_run_alone(
    cli: Cli, controller: FakeController
) -> None:
    controller.answers["POST", f"{SHOWN}/cancel"] = Answer.of(controller.shown, 202)
    assert cli("cancel", ID) == 0
    controller.finish("passed")
    assert cli("cancel", ID) == 0
    assert "is over already: passed" in cli.err
    assert len(controller.sent("POST", f"{SHOWN}/cancel")) == 1


def reports(controller: FakeController, artifact: str = "moe.txt") -> None:
    for one in controller.shown["cells"]:
        one["artifacts"] = [{"name": artifact, "size_bytes": 3}]
        path = f"{SHOWN}/cells/{one['id']}/artifacts/{artifact}"
        controller.answers["GET", path] = Answer(200, b"raw", "text/plain")

    def report(request: Request) -> Answer:
        about = request.query.get("cell", ["whole"])[0]
        return Answer(200, f"# {about}\n".encode(), "text/markdown")

    for kind in ("summary", "platform"):
        controller.answers["GET", f"{SHOWN}/reports/{kind}.md"] = report


def test_reports_are_printed(cli: Cli, controller: FakeController) -> None:
    reports(controller)
    assert cli("report", ID) == 0
    assert cli.out == "# whole\n"
    assert cli("report", ID, "--cell", "gcp-l4") == 0
    assert cli.out == "# gcp-l4\n"
    assert cli("report", ID, "--kind", "platform") == 0
    assert cli.out == "# local-cpu\n# gcp-l4\n# aws-a10g\n"


def test_a_tree_of_reports_is_written(cli: Cli, controller: FakeController) -> None:
    reports(controller)
    folder = cli.folder / "out"
    assert cli("report", ID, "-o", str(folder)) == 0
    assert cli.out == f"{folder / 'SUMMARY.md'}\n"
    found = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    cells = ("local-cpu", "gcp-l4", "aws-a10g")
    assert found == {
        "SUMMARY.md": "# whole\n",
        **{f"{c}/SUMMARY.md": f"# {c}\n" for c in cells},
        **{f"{c}/moe.txt": "raw" for c in cells},
    }


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "..", "SUMMARY.md", "a/b"])
def test_a_raw_file_cannot_leave_its_folder(
    cli: Cli, controller: FakeController, name: str
) -> None:
    reports(controller, name)
    assert cli("report", ID, "-o", str(cli.folder / "out")) == 2
    assert "which is not written" in cli.err
    assert not (cli.folder / "evil").exists()


def test_tokens(cli: Cli, controller: FakeController) -> None:
    token: dict[str, Any] = {"id": "t1", "name": "ci", "scope": "run", "expires_at": None}
    secret = token | {"secret": "seatrial_x"}
    controller.answers["POST", "/api/v1/tokens"] = Answer.of(secret, 201)
    controller.answers["GET", "/api/v1/tokens"] = Answer.of({"items": [token]})
    controller.answers["DELETE", "/api/v1/tokens/t1"] = Answer(204)
    assert cli("token", "create", "ci", "--scope", "run", "--days", "3") == 0
    assert cli.out == "seatrial_x\n"
    sent = controller.sent("POST", "/api/v1/tokens")[0].json
    assert sent == {"name": "ci", "scope": "run", "days": 3}
    assert cli("token", "list") == 0
    assert "t1" in cli.out
    assert cli("token", "revoke", "t1") == 0


def test_serve_refuses_a_held_home_and_passes_its_options_on(cli: Cli) -> None:
    assert cli("serve", "--port", "9000", "--no-cells") == 3
    assert cli.wiring.served == [{"until_idle": False, "host": None, "port": 9000, "cells": False}]
    cli.wiring.held_by = 4711
    assert cli("serve") == 2
    assert "is held by process 4711" in cli.err
    assert len(cli.wiring.served) == 1


def test_the_database_commands(cli: Cli) -> None:
    assert cli("db", "check") == 1
    assert cli.out == "sqlite:///app.db: at revision 1, needs 2\n"
    assert cli("db", "upgrade") == 0
    assert cli.out == "sqlite:///app.db: at revision 2, up to date\n"
    cli.wiring.held_by = 7
    assert cli("db", "upgrade") == 2
    assert "stop it first" in cli.err


def test_schemas_are_printed(cli: Cli) -> None:
    assert cli("schema", "matrix") == 0
    assert "platforms" in json.loads(cli.out)["properties"]
    assert cli("schema", "payload") == 0
    assert "job" in json.loads(cli.out)["properties"]


def test_doctor_says_what_to_do(cli: Cli, controller: FakeController) -> None:
    assert cli("doctor") == 0
    assert any(re.match(r"WARN +database .*`seatrial db upgrade`", x) for x in cli.out.splitlines())
    cli.wiring.held_by = 7
    assert cli("doctor", "--json") == 0
    found = {one["name"]: one for one in json.loads(cli.out)}
    assert found["controller"]["text"] == "process 7 holds the home and answers"
    assert found["database"]["level"] == "FAIL"


def test_a_home_that_cannot_be_used_is_a_sentence(cli: Cli) -> None:
    (cli.folder / "file").write_text("")
    cli.wiring.settings.home = cli.folder / "file" / "home"
    assert cli("runs") == 2
    assert "cannot be used" in cli.err


def test_an_address_where_nobody_answers(cli: Cli) -> None:
    cli.wiring.settings.url = "http://127.0.0.1:9"
    assert cli("runs") == 2
    assert "http://127.0.0.1:9 cannot be reached" in cli.err


def test_an_unusable_variable_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEATRIAL_URL", "nonsense")
    assert main(CommandWiring(), ["runs"]) == 2
    assert capsys.readouterr().err == "SEATRIAL_URL must look like https://host:port\n"


@pytest.mark.parametrize(
    "args",
    [["nonsense"], ["run"], ["run", "m", "--on-interrupt", "x"], ["watch", "--timeout", "-1"]],
)
def test_usage_errors(cli: Cli, args: list[str]) -> None:
    assert cli(*args) == 2
    assert cli.out == ""


def test_an_unexpected_error_is_one_line_unless_asked(
    cli: Cli, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A failing clock is nothing that anybody planned for.
    monkeypatch.setattr(TestWiring, "clock", None)
    assert cli("show", ID) == 5
    assert cli.err.startswith("unexpected: AttributeError: ")
    assert "Traceback" not in cli.err
    assert cli("--debug", "show", ID) == 5
    assert "Traceback" in cli.err
