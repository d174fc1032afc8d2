"""lint: over REST with the real rules, and on the command line against a real socket."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.integration.api_context import Desk
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import Answer, FakeController
from tests.unit.cli.in_process import Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures
LINT = "/api/v1/lint"
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SEEDS, LOGS = GOLDEN / "seeds", GOLDEN / "logs" / "gcp_l4_v046"
WRONG = "| Suite | Passed | Total |\n|---|---|---|\n| A | 1 | 1 |\n| **Total** | 2 | 1 |\n"


@pytest.fixture(scope="module")
def client(shared_api: Desk) -> TestClient:
    """Of a controller that no test changes."""
    return shared_api.client


def seed(name: str) -> dict[str, object]:
    return {"name": f"{name}.md", "text": (SEEDS / f"{name}.md").read_text("utf-8")}


def test_the_seeds_are_read_together(client: TestClient) -> None:
    body = {"documents": [seed(name) for name in ("000", "001", "002", "003", "004")]}
    answer = client.post(LINT, json=body)
    assert answer.status_code == 200
    told = answer.json()
    lines = [f"{f['document']}:{f['line']}: {f['level']}: {f['rule']}: {f['message']}"
             for f in told["findings"]]  # fmt: skip
    assert lines == (SEEDS / "together.findings").read_text("utf-8").splitlines()
    assert sum(told["counts"].values()) == len(lines)
    assert told["run"] is None
    assert all(finding["advice"] for finding in told["findings"])


def test_a_document_is_held_against_a_run(api: Desk) -> None:
    client = api.client
    run = str(api.launch("k")["id"])
    answer = client.post(LINT, json={"documents": [seed("003")], "run": run[:8]})
    assert answer.status_code == 200
    assert answer.json()["run"] == run


def test_the_seeds_are_held_against_the_real_logs_as_they_are_ingested(api: Desk) -> None:
    client = api.client
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in sorted(LOGS.iterdir()):
            archive.add(file, file.name)
    url = "/api/v1/ingest?platform=gcp-l4&subject=torchbridge@0.4.6"
    ingested = client.post(url, content=packed.getvalue())
    assert ingested.status_code == 201
    documents = [seed("003"), seed("004")]
    answer = client.post(LINT, json={"documents": documents, "run": "latest"})
    told = {(f["document"], f["rule"], f["line"]) for f in answer.json()["findings"]}
    assert {
        ("003.md", "degraded", 107),
        ("003.md", "degraded", 30),
        ("003.md", "evidence-slower", 29),
        ("003.md", "version-stamp", 1),
        ("004.md", "evidence-test", 139),
    } <= told
    right = {"evidence-count", "evidence-demo", "evidence-metric", "environment"}
    assert not {(d, rule) for d, rule, _ in told if d == "003.md" and rule in right}
    ours = client.get("/api/v1/runs/latest/reports/platform.md?cell=gcp-l4").text
    body = {"documents": [{"name": "ours.md", "text": ours}], "run": "latest"}
    assert client.post(LINT, json=body).json()["findings"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"documents": []}, 422),
        ({"documents": [{"name": "a"}]}, 422),
        ({"documents": [{"name": "a", "text": "x" * ((1 << 19) + 1)}]}, 422),
        ({"documents": [{"name": "a", "text": ""}] * 51}, 422),
        ({"documents": [{"name": "a", "text": ""}], "run": "nothing"}, 404),
        ({"documents": [{"name": "a", "text": ""}], "more": 1}, 422),
    ],
)
def test_what_cannot_be_read_is_refused(client: TestClient, body: object, status: int) -> None:
    answer = client.post(LINT, json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_two_documents_of_one_name_are_told_apart(client: TestClient) -> None:
    body = {"documents": [{"name": "a.md", "text": WRONG}] * 2}
    found = client.post(LINT, json=body).json()["findings"]
    assert {f["document"] for f in found if f["rule"] == "total"} == {"a.md", "a.md (2)"}


def finding(level: str = "error", message: str = "the total is 2") -> dict[str, object]:
    return {
        "level": level, "rule": "total", "document": "a.md", "line": 4, "message": message,
        "advice": "Add the rows up again.",
    }  # fmt: skip


def finds(controller: FakeController, *found: dict[str, object]) -> None:
    answer = {"findings": list(found), "counts": {}, "run": None}
    controller.answers["POST", LINT] = Answer.of(answer)


def test_findings_are_printed_with_what_to_do(
    cli: Cli, controller: FakeController, tmp_path: Path
) -> None:
    file = tmp_path / "a.md"
    file.write_text(WRONG, "utf-8")
    finds(controller, finding(), finding("warning", "evil \x1b[2J\u202e"))
    assert cli("lint", str(file)) == 0
    assert "    4  error    total: the total is 2" in cli.out
    assert "Add the rows up again." in cli.out
    assert "\x1b" not in cli.out
    assert "\u202e" not in cli.out
    assert "1 error, 1 warning" in cli.err
    sent = json.loads(controller.sent("POST", LINT)[-1].body)
    assert sent == {"documents": [{"name": "a.md", "text": WRONG, "replaced": 0}], "run": None}


def test_strict_fails_on_errors_alone(cli: Cli, controller: FakeController, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("# fine", "utf-8")
    finds(controller, finding("warning"))
    assert cli("lint", str(file), "--strict") == 0
    finds(controller, finding("error"))
    assert cli("lint", str(file), "--strict", "--evidence", "latest") == 1
    assert json.loads(controller.sent("POST", LINT)[-1].body)["run"] == "latest"
    assert cli("lint", str(file)) == 0
    finds(controller)
    assert cli("lint", str(file), "--json") == 0
    assert json.loads(cli.out)["findings"] == []


def test_bytes_that_are_no_text_are_counted(
    cli: Cli, controller: FakeController, tmp_path: Path
) -> None:
    file = tmp_path / "a.md"
    file.write_bytes("# a \ufffd ".encode() + b"\xff\xfe")
    finds(controller)
    assert cli("lint", str(file)) == 0
    sent = json.loads(controller.sent("POST", LINT)[-1].body)["documents"][0]
    assert sent["replaced"] == 2


def test_too_many_files_are_a_sentence(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(WRONG)
    assert cli("lint", *[str(tmp_path / "a.md")] * 51) == 2
    assert "51 files are too many: at most 50 go together" in cli.err


def test_a_file_that_is_not_there_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    assert cli("lint", str(tmp_path / "none.md")) == 2
    assert "none.md: No such file" in cli.err
    big = tmp_path / "big.md"
    big.write_bytes(b"x" * ((1 << 19) + 1))
    assert cli("lint", str(big)) == 2
    assert "that is no report" in cli.err
