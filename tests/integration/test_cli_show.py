"""Looking at runs, and keeping a controller: against one of the tests' own over a real socket."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.cli.app import main
from tests.unit.cli import in_process, runs
from tests.unit.cli.fake_controller import Answer, FakeController, Request, serving_tcp
from tests.unit.cli.in_process import ID, SHOWN, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures


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


def test_show_says_what_its_signs_mean(cli: Cli, controller: FakeController) -> None:
    controller.finish("failed")
    assert cli("show", ID) == 0
    (line,) = (line for line in cli.out.splitlines() if "✗ failed · " in line)
    assert line.startswith("✓ passed · ✗ failed")
    assert "⊘" not in line or "⊘" in cli.out.replace(line, "")


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


@pytest.mark.parametrize(
    ("state", "outcome", "says"),
    [
        ("running", None, f"is being cancelled; `seatrial watch {ID}` shows it"),
        ("finished", "passed", "is over already: passed"),
        ("ingesting", None, "is only taking in evidence; there is nothing to cancel"),
    ],
)
def test_cancel_asks_once_and_says_what_became_of_it(
    cli: Cli, controller: FakeController, state: str, outcome: str | None, says: str
) -> None:
    answer = {
        "id": ID,
        "matrix_name": "release",
        "subject_name": "torchbridge",
        "subject_version": "0.4.40",
        "payload_digest": "d" * 64,
        "created_at": runs.at(0),
        "state": state,
        "outcome": outcome,
    }
    controller.answers["POST", f"{SHOWN}/cancel"] = Answer.of(answer, 202)
    assert cli("cancel", ID) == 0
    assert says in cli.err
    assert [one.method for one in controller.requests] == ["POST"]


def reports(controller: FakeController, artifact: str = "moe.txt") -> None:
    for one in controller.shown["cells"]:
        one["artifacts"] = [{"name": artifact, "size_bytes": 3, "digest": "d" * 64}]
        path = f"{SHOWN}/cells/{one['id']}/artifacts/{artifact}"
        controller.answers["GET", path] = Answer(200, b"raw", "text/plain")

    def report(request: Request) -> Answer:
        about = request.query.get("cell", ["whole"])[0]
        return Answer(200, f"# {about}\n".encode(), "text/markdown")

    for kind in ("summary", "platform"):
        controller.answers["GET", f"{SHOWN}/reports/{kind}.md"] = report
        controller.answers["GET", f"{SHOWN}/reports/{kind}/plots"] = Answer.of({"items": []})


def test_reports_are_printed(cli: Cli, controller: FakeController) -> None:
    reports(controller)
    assert cli("report", ID) == 0
    assert cli.out == "# whole\n"
    # What is printed has no files beside it.
    assert controller.requests[-1].query["alone"] == ["true"]
    assert cli("report", ID, "--cell", "gcp-l4") == 0
    assert cli.out == "# gcp-l4\n"
    assert cli("report", ID, "--kind", "platform") == 0
    assert cli.out == "# local-cpu\n# gcp-l4\n# aws-a10g\n"


def test_a_tree_of_reports_is_written(cli: Cli, controller: FakeController) -> None:
    reports(controller)
    folder = cli.folder / "out"
    assert cli("report", ID, "-o", str(folder)) == 0
    assert cli.out == f"{folder / 'SUMMARY.md'}\n"
    assert not any("alone" in one.query for one in controller.requests)
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
    assert "which is skipped" in cli.err
    assert not (cli.folder / "evil").exists()


def test_tokens(cli: Cli, controller: FakeController) -> None:
    token: dict[str, Any] = {"id": "t1", "name": "ci", "scope": "run"}
    token["expires_at"] = "2026-11-29T15:22:04.483187+00:00"
    token["created_at"] = runs.at(0)
    secret = token | {"secret": "seatrial_x"}
    controller.answers["POST", "/api/v1/tokens"] = Answer.of(secret, 201)
    controller.answers["GET", "/api/v1/tokens"] = Answer.of({"items": [token]})
    controller.answers["DELETE", "/api/v1/tokens/t1"] = Answer(204)
    assert cli("token", "create", "ci", "--scope", "run", "--days", "3") == 0
    assert cli.out == "seatrial_x\n"
    assert "Token t1 expires at 2026-11-29 15:22 UTC." in cli.err
    sent = controller.sent("POST", "/api/v1/tokens")[0].json
    assert sent == {"name": "ci", "scope": "run", "days": 3}
    assert cli("token", "list") == 0
    assert "2026-11-29 15:22 UTC" in cli.out
    assert cli("token", "revoke", "t1") == 0


def test_sessions(cli: Cli, controller: FakeController) -> None:
    path = "/api/v1/sessions"
    controller.answers["GET", path] = Answer.of({"items": []})
    assert cli("session", "list") == 0
    assert "No browser is signed in." in cli.out + cli.err
    moments = dict.fromkeys(("created_at", "last_used_at", "expires_at"), runs.at(0))
    named = {"name": "https://login.example#7", "display_name": "Ana Lee", "roles_digest": ""}
    named |= {"address": "192.0.2.7", "agent": "Firefox"}
    one = {"id": "s1", "scope": "gate", "token": None, **named, **moments}
    controller.answers["GET", path] = Answer.of({"items": [one]})
    controller.answers["DELETE", f"{path}/s1"] = Answer(204)
    assert cli("session", "list") == 0
    for word in ("s1", "https://login.example#7", "Ana Lee", "gate", "192.0.2.7 Firefox"):
        assert word in cli.out
    assert cli("session", "revoke", "s1") == 0
    assert "Session s1 is revoked." in cli.err


def test_serve_passes_its_options_on(cli: Cli) -> None:
    assert cli("serve", "--port", "9000", "--no-cells", "--tls-cert", "tls.pem") == 3
    options = {"until_idle": False, "host": None, "port": 9000, "cells": False}
    files = {"tls_cert": Path("tls.pem"), "tls_key": None}
    assert cli.wiring.served == [{**options, "local_jobs_as": None, **files}]


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
    assert "torch" not in cli.out
    assert "Seatrial's own: jobs on this computer use it only where" in " ".join(cli.out.split())
    assert any(re.match(r"WARN +database .*`seatrial db upgrade`", x) for x in cli.out.splitlines())
    cli.wiring.held_by = 7
    assert cli("doctor", "--json") == 0
    found = {one["name"]: one for one in json.loads(cli.out)}
    assert found["controller"]["text"] == "process 7 holds the home and answers"
    assert found["database"]["level"] == "FAIL"


@pytest.mark.parametrize(
    ("mode", "level", "says"),
    [(0o755, "WARN", "closes it"), (0o1777, "FAIL", "a folder of your own"), (0o700, "OK", "")],
)
def test_doctor_says_who_can_enter_the_home(cli: Cli, mode: int, level: str, says: str) -> None:
    home = cli.wiring.settings.home
    home.mkdir(exist_ok=True)
    home.chmod(mode)
    cli("doctor", "--json")
    *_, found = (one for one in json.loads(cli.out) if one["name"] == "home")
    assert (found["level"], says in found["text"]) == (level, True)


def test_a_home_that_cannot_be_used_is_a_sentence(cli: Cli) -> None:
    (cli.folder / "file").write_text("")
    cli.wiring.settings.home = cli.folder / "file" / "home"
    assert cli("cancel", ID) == 2
    assert "cannot be used" in cli.err


@pytest.mark.parametrize("command", [["db", "upgrade"], ["serve", "--port", "8470"]])
def test_a_home_that_is_a_file_is_a_sentence_to_its_keeper(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEATRIAL_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("SEATRIAL_DATABASE_URL", raising=False)
    assert main(CommandWiring(), command) == 2
    said = f"SEATRIAL_HOME {tmp_path / 'file'} cannot be used: File exists; set it to a folder"
    assert capsys.readouterr().err.startswith(said)


def test_an_address_where_nobody_answers(cli: Cli) -> None:
    cli.wiring.settings.url = "http://127.0.0.1:9"
    assert cli("runs") == 2
    assert "http://127.0.0.1:9 cannot be reached" in cli.err
    assert "Check SEATRIAL_URL, and that `seatrial serve` runs there." in cli.err


def test_an_address_with_the_scheme_of_another_server(cli: Cli, controller: FakeController) -> None:
    with serving_tcp(controller) as port:
        cli.wiring.settings.url = f"https://127.0.0.1:{port}"
        assert cli("runs") == 2
    assert "begin its URL with http://." in cli.err


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(404, "text/html", 2), (200, "text/html", 2), (403, "text/html", 4), (500, "text/plain", 5)],
)
def test_an_address_where_somebody_else_answers(
    cli: Cli, status: int, kind: str, code: int
) -> None:
    """A proxy's page is told as one: neither a missing scope nor the controller's failure."""
    headers = {"Content-Type": f"{kind}; charset=utf-8"}
    page = Answer(status, b"<html>nothing here</html>", headers=headers)
    other = FakeController()
    other.answers["GET", "/api/v1/runs"] = page
    with serving_tcp(other) as port:
        cli.wiring.settings.url = f"http://127.0.0.1:{port}"
        assert cli("runs") == code
    (line,) = cli.err.splitlines()
    assert line.endswith(
        f"/api/v1/runs?limit=20 does not answer like a Seatrial controller, but with {status} and "
        f"{kind}; look at SEATRIAL_URL"
    )


def test_an_unusable_variable_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEATRIAL_URL", "nonsense")
    assert main(CommandWiring(), ["runs"]) == 2
    wanted = "SEATRIAL_URL must look like https://host:port, not 'nonsense'\n"
    assert capsys.readouterr().err == wanted


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
    monkeypatch.setattr(cli.wiring, "clock", None)
    assert cli("show", ID) == 5
    assert cli.err.startswith("unexpected: AttributeError: ")
    assert "Traceback" not in cli.err
    assert cli("--debug", "show", ID) == 5
    assert "Traceback" in cli.err


def test_a_run_is_no_path(cli: Cli, controller: FakeController) -> None:
    assert cli("show", f"{ID}/../x") == 2
    assert cli.err == f"there is no run '{ID}/../x'; `seatrial runs` lists them\n"
    assert controller.requests == []


def test_an_export_is_printed_or_written_whole(cli: Cli, controller: FakeController) -> None:
    def export(request: Request) -> Answer:
        about = request.query.get("cell", ["whole"])[0]
        return Answer(200, f"<testsuites>{about}</testsuites>\n".encode(), "application/xml")

    controller.answers["GET", f"{SHOWN}/export/junit"] = export
    assert cli("export", ID) == 0
    assert cli.out == "<testsuites>whole</testsuites>\n"
    target = cli.folder / "out.xml"
    assert cli("export", ID, "--format", "junit", "--cell", "gcp-l4", "-o", str(target)) == 0
    assert cli.out == f"{target}\n"
    assert target.read_text() == "<testsuites>gcp-l4</testsuites>\n"
    assert [path.name for path in cli.folder.glob("out.xml*")] == ["out.xml"]


def test_an_export_that_is_refused_leaves_no_file(cli: Cli, controller: FakeController) -> None:
    controller.answers["GET", f"{SHOWN}/export/csv"] = Answer.problem(404, "no such thing")
    target = cli.folder / "out.csv"
    assert cli("export", ID, "--format", "csv", "-o", str(target)) == 2
    assert list(cli.folder.glob("out.csv*")) == []
    assert cli("export", ID, "--cell", "gcp-l") == 2
    assert "did you mean 'gcp-l4'?" in cli.err
    assert cli("export", ID, "-o", str(cli.folder / "no" / "folder")) == 2
