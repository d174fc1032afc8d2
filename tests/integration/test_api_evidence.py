"""What a cell left behind, over REST: log, tests, artifacts, reports."""

from __future__ import annotations

import pytest

from orchestrator.domain.run_record import ArtifactRecord
from tests.databases import Agent, write_log
from tests.integration.api_context import Desk
from tests.integration.test_api_history import ISSUE

CELL = "/api/v1/runs/latest/cells/here"
TEXT = "aé€💥\n" * 8


@pytest.fixture
def agent(api: Desk) -> Agent:
    return api.begin(str(api.launch()["id"]), "here")


@pytest.fixture(scope="module")
def told(shared_api: Desk) -> Desk:
    """A run whose cell has said how its tests went; nobody changes it."""
    collected(shared_api.begin(str(shared_api.launch()["id"]), "here"))
    return shared_api


def log(api: Desk, agent: Agent, data: bytes, *, offset: int = 0) -> None:
    assert write_log(api.database.stores, agent.attempt_id, data, offset=offset)


def finish(api: Desk) -> None:
    run = api.database.stores.runs.find("latest")[0]
    api.begin(run, "there")
    api.finish(run, "here", "there")


def test_a_log_read_in_pieces_is_the_log(api: Desk, agent: Agent) -> None:
    log(api, agent, TEXT.encode())
    finish(api)
    for limit in (4, 5, 7, 1000, 100_000):
        pieces, after, done = [], 0, False
        while not done:
            part = api.client.get(f"{CELL}/log", params={"after": after, "limit": limit}).json()
            assert part["next"] > after or part["done"]
            pieces.append(part["text"])
            after, done = part["next"], part["done"]
        assert "".join(pieces) == TEXT, limit
        assert after == len(TEXT.encode())


def test_half_a_character_waits_for_the_rest(api: Desk, agent: Agent) -> None:
    data = "€".encode()
    log(api, agent, b"a" + data[:2])
    part = api.client.get(f"{CELL}/log").json()
    assert part == {"text": "a", "next": 1, "done": False}
    log(api, agent, data[2:], offset=3)
    assert api.client.get(f"{CELL}/log", params={"after": 1}).json()["text"] == "€"


def test_half_a_character_at_the_very_end_is_shown_as_such(api: Desk, agent: Agent) -> None:
    log(api, agent, b"a\xe2\x82")
    finish(api)
    assert api.client.get(f"{CELL}/log").json() == {"text": "a\ufffd", "next": 3, "done": True}


def test_bytes_that_are_no_text_do_not_stop_the_log(api: Desk, agent: Agent) -> None:
    data = bytes(range(256))
    log(api, agent, data)
    finish(api)
    after, seen = 0, ""
    for _ in range(400):
        part = api.client.get(f"{CELL}/log", params={"after": after, "limit": 4}).json()
        seen, after = seen + part["text"], part["next"]
        if part["done"]:
            break
    assert after == len(data)
    assert seen.count("\x00") == 1


def test_a_log_that_may_still_grow_is_not_done(api: Desk, agent: Agent) -> None:
    log(api, agent, b"abc")
    end = {"text": "", "next": 3, "done": False}
    assert api.client.get(f"{CELL}/log", params={"after": 3}).json() == end
    assert api.client.get(f"{CELL}/log", params={"after": 99}).json() == end
    finish(api)
    assert api.client.get(f"{CELL}/log", params={"after": 3}).json() == end | {"done": True}


def test_the_log_as_bytes_is_saved_and_never_shown(api: Desk, agent: Agent) -> None:
    data = b"<script>alert(1)</script>\xff\x00"
    log(api, agent, data)
    accept = {"Accept": "application/octet-stream"}
    answer = api.client.get(f"{CELL}/log", params={"after": 1, "limit": 10}, headers=accept)
    assert answer.content == data[1:11]
    assert answer.headers["seatrial-next-offset"] == "11"
    assert answer.headers["seatrial-done"] == "false"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert_harmless(answer.headers)


def assert_harmless(headers) -> None:
    assert headers["content-disposition"].startswith("attachment; filename=")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", f"after={2**63}", "limit=3", "limit=99999999"]
)
def test_a_log_refuses_what_it_cannot_do(told: Desk, query: str) -> None:
    answer = told.client.get(f"{CELL}/log?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] in ("after", "limit")


def collected(agent: Agent) -> None:
    names = [f"t.py::test_{n}" for n in range(7)]
    crash = {"longrepr": "Traceback\nValueError: <b>no</b>", "crash": {"message": "no\nmore"}}
    agent.send(
        agent.manifest(*names),
        *(agent.test(name) for name in names[:4]),
        agent.test(names[4], "failed", **crash),
        agent.test("d.py::test_d", job="demo"),
    )


def test_tests_are_told_in_order_with_the_text_of_their_failure(told: Desk) -> None:
    page = told.client.get(f"{CELL}/tests").json()
    assert page["next"] is None
    by_name = {test["nodeid"]: test for test in page["items"]}
    assert len(by_name) == 8
    failed = by_name["t.py::test_4"]
    assert (failed["outcome"], failed["final"]) == ("failed", True)
    assert failed["text"] == "Traceback\nValueError: <b>no</b>"
    assert by_name["t.py::test_5"]["outcome"] == "missing"


def test_tests_are_narrowed_by_job_and_outcome(told: Desk) -> None:
    def names(**query: str) -> list[str]:
        items = told.client.get(f"{CELL}/tests", params=query).json()["items"]
        return [test["nodeid"] for test in items]

    assert names(job="demo") == ["d.py::test_d"]
    assert names(outcome="failed") == ["t.py::test_4"]
    assert names(job="demo", outcome="failed") == names(job="nope") == names(job="\x00") == []
    assert told.client.get(f"{CELL}/tests", params={"outcome": "bad"}).status_code == 422


@pytest.mark.parametrize("query", [{}, {"outcome": "passed"}, {"job": "unit"}])
def test_pages_of_tests_together_are_all_of_them(told: Desk, query: dict[str, str]) -> None:
    whole = told.client.get(f"{CELL}/tests", params=query).json()["items"]
    seen, after = [], 0
    while after is not None:
        params = query | {"limit": "2", "after": str(after)}
        page = told.client.get(f"{CELL}/tests", params=params).json()
        assert 0 < len(page["items"]) <= 2
        seen += page["items"]
        after = page["next"]
    assert seen == whole


def test_an_artifact_comes_as_it_was_and_is_never_shown(api: Desk, agent: Agent) -> None:
    data = b"<script>alert(1)</script>" * 50_000
    digest, size = api.context.blobs.put([data])
    cell = api.database.stores.cells.attempt(agent.attempt_id).cell_id
    kinds = {
        "drawing.svg": "application/octet-stream",
        "events.jsonl": "text/plain; charset=utf-8",
        'odd "name"\r\nX-Evil: 1 ü.txt': "text/plain; charset=utf-8",
        "page.html": "application/octet-stream",
    }
    artifacts = [ArtifactRecord(name, size, digest) for name in kinds]
    api.database.stores.results.put_artifacts(cell, artifacts)
    shown = api.client.get("/api/v1/runs/latest").json()["cells"][0]["artifacts"]
    same = {"size_bytes": size, "digest": digest, "pruned_at": None}
    assert shown == [{"name": name} | same for name in kinds]
    for name, kind in kinds.items():
        answer = api.client.get(f"{CELL}/artifacts/{quoted(name)}")
        assert (answer.status_code, answer.content == data) == (200, True)
        assert answer.headers["content-type"] == kind
        assert answer.headers["content-length"] == str(size)
        assert "x-evil" not in answer.headers
        assert_harmless(answer.headers)


def quoted(name: str) -> str:
    return "".join(f"%{byte:02x}" for byte in name.encode())


def test_an_artifact_that_is_not_there_is_not_found(api: Desk, agent: Agent) -> None:
    for name in ("nope", "%00", "..%2f..%2fapp.db", "x" * 3000):
        assert api.client.get(f"{CELL}/artifacts/{name}").status_code == 404, name
    cell = api.database.stores.cells.attempt(agent.attempt_id).cell_id
    api.database.stores.results.put_artifacts(cell, [ArtifactRecord("lost.txt", 3, "0" * 64)])
    answer = api.client.get(f"{CELL}/artifacts/lost.txt")
    assert (answer.status_code, answer.json()["type"][-13:]) == (404, "bytes-missing")


@pytest.mark.parametrize("cell", ["nope", "%00", "Here", "here.image", "x" * 3000])
def test_a_cell_that_is_not_there_is_not_found(told: Desk, cell: str) -> None:
    for what in ("log", "tests", "artifacts/a"):
        answer = told.client.get(f"/api/v1/runs/latest/cells/{cell}/{what}")
        assert answer.status_code == 404
        assert "here, there" in answer.json()["detail"]


def test_reports_are_rendered_in_every_form(api: Desk, agent: Agent) -> None:
    api.client.post("/api/v1/known-issues", json=ISSUE).raise_for_status()
    agent.send(agent.manifest("a", "b"), agent.test("a"), agent.test("b", "failed"))
    media = {"md": "text/markdown", "html": "text/html", "json": "application/json"}
    for form, kind in media.items():
        for report in (f"summary.{form}", f"platform.{form}?cell=here"):
            answer = api.client.get(f"/api/v1/runs/latest/reports/{report}")
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith(kind)
            assert "sandbox" in answer.headers["content-security-policy"]
            assert "proof" in answer.text


@pytest.mark.parametrize(
    ("report", "status"),
    [
        ("sumary.md", 404),
        ("summary.pdf", 404),
        ("platform.md?cell=nope", 404),
        ("platform.md?cell=%00", 404),
        ("platform.md", 422),
        ("summary.md?cell=here", 422),
        ("..%2f.md", 404),
    ],
)
def test_a_report_that_cannot_be_made_is_a_problem(told: Desk, report: str, status: int) -> None:
    answer = told.client.get(f"/api/v1/runs/latest/reports/{report}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
