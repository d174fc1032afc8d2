"""Reading a home that no controller holds: the same answers, and nothing is written."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import uvicorn
from sqlalchemy import text

from benchmarks.dashboard.fill import Filled, fill
from benchmarks.dashboard.sizes import SIZES
from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.home_folder import system_user
from orchestrator.api.app import create_app, module_of
from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.bootstrap.controller_wiring import Parts, build
from orchestrator.bootstrap.http_server import home_socket
from orchestrator.bootstrap.offline_reads import StoredReads
from orchestrator.cli.app import main
from orchestrator.config import Settings
from tests.waiting import until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OPENAPI = Path(__file__).parents[1] / "golden" / "openapi.json"
OF_A_PROCESS = {
    "/healthz": "whether a controller lives",
    "/readyz": "whether a controller can write",
    "/metrics": "what a controller has answered",
    "/api/v1/machines": "what the clouds say now",
    "/api/v1/runs/{run_id}/events": "goes on for as long as the run",
}
"""What is no question about what is stored, and why."""
WHOLE = ("platforms", "matrix", "payload", "access", "retests", "bisect")
"""Last parts of the paths that no command reads: they take the whole application."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def parts(home: Path) -> Iterator[Parts]:
    made = build(Settings(home=home), runs_cells=False)
    yield made
    made.database.close()


@pytest.fixture(scope="module")
def filled(parts: Parts) -> Filled:
    return fill(parts, SIZES["small"], now=NOW)


@pytest.fixture
def environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_HOME", str(home))
    for name in ("SEATRIAL_URL", "SEATRIAL_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def controller(parts: Parts, home: Path) -> Iterator[httpx.Client]:
    """The application of a controller behind the home's socket, and a client of it."""
    app = create_app(
        parts.context, guard=None, revision=parts.database.ready, operator=system_user()
    )
    path = home / "controller.sock"
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, args=(home_socket(path),), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        with client_of(httpx.HTTPTransport(uds=str(path))) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(60)
        path.unlink(missing_ok=True)


def client_of(transport: httpx.BaseTransport) -> httpx.Client:
    return httpx.Client(transport=transport, base_url="http://localhost", timeout=60)


def addresses(client: httpx.Client, filled: Filled) -> Iterator[str]:
    """Every route that answers what is stored, of things that there are."""
    run = filled.runs[-1]
    shown = client.get(f"/api/v1/runs/{run}").json()
    gate = first(client, "/gates")
    verdict = first(client, f"/gates/{gate['gate']}/verdicts")
    values: dict[str, object] = {
        "run_id": run,
        "cell": shown["cells"][0]["id"],
        "sha256": filled.payload,
        "test_id": first(client, "/tests")["id"],
        "verdict_id": verdict["id"],
        "channel": "none",
        "benchmark": "none",
        "kind": "summary",
        "base": filled.runs[-2],
        "head": run,
        "gate": gate["gate"],
        "product": shown["subject"]["name"],
    }
    named = {"schedules": first(client, "/schedules")["schedule"]["name"], "gates": gate["gate"]}
    named["artifacts"] = "none.txt"
    for path, operations in json.loads(OPENAPI.read_text())["paths"].items():
        if "get" not in operations or path in OF_A_PROCESS:
            continue
        kind = next((noun for noun in named if f"/{noun}/" in path), "")
        known = values | {"name": named.get(kind, "")}
        for form in ("md", "html", "json") if "reports" in path else ("junit",):
            asked = parameters(operations["get"], known)
            yield path.format(**known, format=form) + asked


def parameters(operation: Mapping[str, list[dict[str, object]]], known: dict[str, object]) -> str:
    required = [
        f"{one['name']}={known[str(one['name'])]}"
        for one in operation.get("parameters", [])
        if one["in"] == "query" and one["required"]
    ]
    return "?" + "&".join(required) if required else ""


def first(client: httpx.Client, path: str) -> dict[str, object]:
    found: dict[str, object] = client.get(f"/api/v1{path}").json()["items"][0]
    return found


def answer_of(client: httpx.Client, address: str) -> tuple[int, dict[str, str], bytes]:
    answer = client.get(address)
    # An ETag names an answer that one server keeps.
    of_the_server = ("date", "server", "transfer-encoding", "etag")
    headers = {name: value for name, value in answer.headers.items() if name not in of_the_server}
    return answer.status_code, headers, answer.content


@pytest.mark.slow
def test_every_read_is_byte_for_byte_what_a_controller_answers(
    parts: Parts, home: Path, filled: Filled, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda _self: NOW)  # some answers say the time
    with controller(parts, home) as asked, client_of(StoredReads(CommandWiring().settings)) as own:
        found = {}
        for address in addresses(asked, filled):
            found[address] = answer_of(asked, address)
            assert answer_of(own, address) == found[address], address
            path = address.partition("?")[0]
            assert (module_of(path) is None) == path.endswith(WHOLE), address
    refused = [address for address, (status, _, _) in found.items() if status != 200]
    assert len(refused) < len(found) / 4, refused


@pytest.mark.parametrize(
    "command",
    [["runs"], ["show"], ["report"], ["logs"], ["gate", "list"], ["cost"], ["export"]],
    ids=" ".join,
)
def test_a_read_starts_no_controller_and_writes_nothing(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SEATRIAL_HOME", str(tmp_path))
    build(Settings(home=tmp_path), runs_cells=False).database.close()
    before = files_of(tmp_path)
    code = main(CommandWiring(), command)
    said = capsys.readouterr()
    assert "starting a controller" not in said.err
    assert (code, files_of(tmp_path)) == (
        0 if command[0] in ("runs", "gate", "cost") else 2,
        before,
    )


def files_of(home: Path) -> dict[str, bytes]:
    """Without what SQLite keeps beside a database while it is read."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_a_home_that_is_not_there_is_a_sentence_and_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("SEATRIAL_HOME", str(home))
    said = (
        f"SEATRIAL_HOME {home} holds no runs yet: `seatrial init` in a project, then"
        " `seatrial run seatrial.yaml`\n"
    )
    for command, code, out, err in (
        (["show"], 2, "", said),
        (["runs"], 0, "", said),
        (["runs", "--json"], 0, "[]\n", ""),
    ):
        assert main(CommandWiring(), command) == code
        assert capsys.readouterr() == (out, err)
    assert not home.exists()


def test_tables_of_an_older_version_are_named_with_the_command_that_upgrades_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEATRIAL_HOME", str(tmp_path))
    sqlite3.connect(tmp_path / "app.db").close()
    assert main(CommandWiring(), ["runs"]) == 2
    said = capsys.readouterr().err
    assert f"the database {tmp_path / 'app.db'} is an empty file of 0 bytes" in said
    assert "run `seatrial db upgrade`" in said
    assert not list(tmp_path.glob("controller.*"))


@pytest.mark.slow
def test_a_run_that_nobody_goes_on_with_is_named(
    home: Path, filled: Filled, parts: Parts, environment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    finished, waiting = filled.runs[-2:]
    with parts.database.sessions.write() as session:
        session.execute(text("UPDATE run SET state='running' WHERE id=:id"), {"id": waiting})
    try:
        said = {}
        for run in (finished, waiting):
            assert main(CommandWiring(), ["show", run]) == 0
            said[run] = capsys.readouterr().err
    finally:
        with parts.database.sessions.write() as session:
            session.execute(text("UPDATE run SET state='finished' WHERE id=:id"), {"id": waiting})
    assert said[finished] == ""
    assert f"No controller runs: `seatrial watch {waiting}` starts one" in said[waiting]
