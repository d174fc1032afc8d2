"""A page and its other formats, with text in it that means harm; and addresses of all kinds."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi import APIRouter, Response
from starlette.testclient import TestClient

from orchestrator.application.browser_sessions import cookie_of
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Page, PageRequestDep
from orchestrator.dashboard.table import (
    Badge,
    Column,
    FoldedFacts,
    Moment,
    Number,
    Row,
    Table,
    Text,
)
from orchestrator.store.errors import StoreError
from tests.integration.api_context import Desk
from tests.integration.dashboard.desk import HOST, PageDesk, dashboard, signed_in
from tests.integration.dashboard.shown import read_page

HARM = (
    "<script>alert(1)</script>",
    "=HYPERLINK(1)",
    "+1",
    "-1+cmd",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "a|b\n| c |",
    "[x](javascript:alert(1)) ![i](x) `c` *b* _u_ ~s~ #1 @somebody",
    "\x1b[31mred\x1b[0m \u202egnp.exe \u200b \ufeff \x00",
    "'\"><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "\ud800 lone",
)
probe = APIRouter()


@probe.get("/probe/{name}")
def _probe(asked: PageRequestDep, name: str) -> Response:
    rows = [
        Row((Text(one, note=one), FoldedFacts(one), Badge("passed"), Number(1.5))) for one in HARM
    ]
    columns = (Column("text", "Text"), Column("fold", "F"), Column("b", "B"), Column("n_s", "N"))
    first = Table(id="first", caption="First", columns=columns, rows=rows, next=asked.here(p="2"))
    at = Moment(datetime(2026, 3, 1, tzinfo=UTC))
    times = (Column("at", "At"),)
    second = Table(id="second", caption="Second", columns=times, rows=[Row((at,))])
    none = Table(id="none", caption="None", columns=times, rows=[])
    return asked.answer(
        Page(
            template="gates.html.j2",
            title=name,
            tables=(first, second),
            facts={
                "gates": first,
                "signing": second,
                "channels": none,
                "tested": None,
                "more_gates": 0,
            },
            data={"harm": HARM, "asked": dict(asked.query)},
        )
    )


@probe.get("/away")
def _away(asked: PageRequestDep) -> Response:
    raise StoreError(f"the database postgresql://inside:5432 failed {asked.path}")


@pytest.fixture(scope="module")
def site(shared_api: Desk) -> PageDesk:
    """Pages for who may only read; nothing is stored."""
    return signed_in(shared_api, "read")


@pytest.fixture(scope="module")
def client(site: PageDesk) -> TestClient:
    """The same with two pages more."""
    app = dashboard(site.api.context)
    app.include_router(probe)
    made = site.api.speak(app, base=f"http://{HOST}")
    made.cookies.set(cookie_of(HOST), site.viewer.credential.secret)
    return made


def get(client: TestClient, path: str, status: int = 200) -> Any:
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code == status, answer.text[:500]
    return answer


# Formats


def test_html_shows_harm_as_text(client: TestClient) -> None:
    text = get(client, "/probe/x").text
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert not {"\x1b", "\u202e", "\u200b", "\ufeff", "\x00"} & set(text)
    assert "{{ 7 * 7 }}" in read_page(text).text


def test_json_is_whole_and_true(client: TestClient) -> None:
    told = get(client, "/probe/x.json").json()
    assert told["harm"] == list(HARM)
    assert [row["text"] for row in told["tables"]["first"]["rows"]] == list(HARM)
    assert told["tables"]["second"]["rows"] == [{"at": "2026-03-01T00:00:00+00:00"}]
    assert told["tables"]["first"]["next"] == "/probe/x?p=2"


def test_csv_holds_no_formulas(client: TestClient) -> None:
    answer = get(client, "/probe/x.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    head, *rows = csv.reader(io.StringIO(answer.text))
    assert head == ["text", "fold", "b", "n_s"]
    assert len(rows) == len(HARM)
    for row in rows:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    assert rows[1][0] == "'=HYPERLINK(1)"
    assert {tuple(row[2:]) for row in rows} == {("passed", "1.5")}
    second = get(client, "/probe/x.csv?table=second").text
    assert second.splitlines() == ["at", "2026-03-01T00:00:00+00:00"]


def test_markdown_holds_no_markup(client: TestClient) -> None:
    text = get(client, "/probe/x.md?table=first").text
    lines = text.splitlines()
    assert lines[0] == "**First**"
    assert len(lines) == 2 + 2 + len(HARM)
    for line in lines[2:]:
        assert line.replace("\\|", "").count("|") == 5
    assert "\\[x\\](javascript:alert(1))" in text
    assert "\\<script\\>" in text
    assert "@somebody" not in text
    assert "**Second**" in get(client, "/probe/x.md").text


def test_a_table_that_is_not_there_is_said(client: TestClient) -> None:
    assert "it has first, second" in get(client, "/probe/x.csv?table=third", 404).text
    assert get(client, "/probe/x.json?table=third").json()["tables"].keys() == {"first", "second"}


# Parts


@pytest.mark.parametrize(
    "part", ["nothing", "content", "../head", "__class__", "{{7}}", "\x00", "x" * 5_000, "ü\u202e"]
)
def test_only_parts_can_be_had_alone(client: TestClient, part: str) -> None:
    answer = client.get("/runs", params={"part": part})
    assert answer.status_code == 404
    assert "<main" in answer.text
    assert "\u202e" not in answer.text


# Addresses


def test_head_is_get_without_a_body(client: TestClient) -> None:
    for path, status in (("/runs", 200), ("/nothing", 404), ("/login", 200)):
        told, asked = client.head(path, follow_redirects=False), client.get(path)
        assert told.status_code == asked.status_code == status
        assert told.content == b""
        assert told.headers["content-type"] == asked.headers["content-type"]
    static = read_page(get(client, "/login").text).all("link", rel="stylesheet")[0]["href"]
    assert client.head(static).headers["cache-control"].endswith("immutable")


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/runs/",
        "/runs.html",
        "/runs.JSON",
        "/runs.json.json",
        "/index",
        "/%00",
        "/%ff%fe",
        "/..%2f..%2fetc%2fpasswd",
        "/static/../app.py",
        "/static/x/%2e%2e/%2e%2e/app.py",
        "/gates/%3Cscript%3E",
        "/verdicts/%E2%80%AE",
        "/" + "x" * 8_000,
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(client: TestClient, path: str) -> None:
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code == 404, answer.status_code
    assert "<script>alert" not in answer.text
    assert "\u202e" not in answer.text
    assert "require-trusted-types-for" in answer.headers["content-security-policy"]


def test_another_method_is_refused_by_a_page(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert client.request(method, "/runs").status_code == 405


def test_a_name_that_ends_like_a_format_is_still_a_name(client: TestClient) -> None:
    assert urls.gate_url("x.json") == "/gates/x%2Ejson"
    assert urls.cell_url("r", "aws.md") == "/runs/r/cells/aws%2Emd"
    page = read_page(get(client, "/probe/x%2Ejson").text)
    assert page.one("h1").text == "x.json"
    links = {one["href"] for one in page.all("a") if one.get("href").startswith("/probe/")}
    assert "/probe/x%2Ejson?p=2" in links
    assert "/probe/x%2Ejson.csv?table=first" in links
    assert get(client, "/probe/x%2Ejson.json").json()["title"] == "x.json"
    assert get(client, "/probe/x%2Ejson.csv?table=second").text.startswith("at")
    assert get(client, "/probe/x.y.json").json()["title"] == "x.y"


def test_what_stands_in_a_query_breaks_nothing(client: TestClient) -> None:
    query = "path=1&self=2&part=&table=&suffix=3&changed=4&asked=5&x=%22%3E%3Cscript%3E&x=last"
    page = read_page(get(client, f"/probe/x?{query}").text)
    more = page.one("a", rel="next")["href"]
    assert more.startswith("/probe/x?path=1&self=2&")
    assert more.endswith("&x=last&p=2")
    assert get(client, f"/probe/x.json?{query}").json()["asked"]["x"] == "last"


def test_the_board_has_other_formats_by_another_name(client: TestClient) -> None:
    assert get(client, "/index.json").json()["title"] == get(client, "/.json").json()["title"]


def test_an_error_tells_nothing_of_what_went_wrong(
    site: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(type(site.stores.gates), "policies", broken)
    answer = site.get("/gates", status=500)
    assert "hunter2" not in answer.text
    assert "its log has the details" in answer.text
    assert "hunter2" not in site.get("/gates.json", status=500).text


def test_what_the_database_said_is_for_the_log(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert "inside" not in get(client, "/away", 503).text
    assert "postgresql://inside:5432" in caplog.text
