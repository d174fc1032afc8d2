"""Lists of REST in pages: each page follows the one before, and together they are the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.dashboard.fill import fill
from orchestrator.client import transport
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import AnswerList, newest
from orchestrator.domain.caller_identity import BrowserSession, Scope, Token
from orchestrator.domain.gate.payload_review import PayloadReview
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.node_ids import Alias, AliasState, NameChange
from tests.contract.outbox_cases import channel, putting
from tests.integration.api_context import BEGIN, Desk, Slots, desk
from tests.integration.project_worlds import TINY

API = "/api/v1"
SAID = {"kind": "recommendation", "author": "release team"}
LISTS = {
    "aliases": 3,
    "approvals?gate=release": 3,
    "audit": 1,
    "channels/c-1/deliveries": 3,
    "gates": 2,
    "gates/release/policies": 3,
    "gates/release/verdicts": 2,
    "known-issues": 3,
    "payload-reviews": 3,
    "quarantines": 3,
    "runs": 3,
    "runs/latest/annotations": 3,
    "schedules": 3,
    "sessions": 3,
    "tests": 3,
    "tokens": 3,
    "waivers": 2,
}
"""The least number of items that each list has here."""
UNWALKED = {"/api/v1/runs/{run_id}/cells/{cell}/tests", "/api/v1/runs/{run_id}/cells/{cell}/log"}
"""Pages of one cell, which have tests of their own."""

NAMED = {"release": "{name}", "latest": "{run_id}", "c-1": "{channel}"}
SMALL = replace(TINY, judged=1)
LATER = BEGIN + timedelta(hours=1)
SESSION = BrowserSession(
    id="", token="t0", name="p", display_name="", scope=Scope.RUN, roles_digest="",
    created_at=BEGIN, last_used_at=BEGIN, expires_at=LATER, address="", agent="",
)  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, slots: Slots) -> Iterator[Desk]:
    with slots.fresh() as slot, desk(tmp_path_factory.mktemp("pages"), slot) as one:
        fill(
            cast(Any, SimpleNamespace(context=one.context, database=one.database)), SMALL, now=BEGIN
        )
        _add_more(one)
        yield one


def _add_more(api: Desk) -> None:
    """Add what a filled database has too few of."""
    stores = api.context.stores
    gates, put = stores.gates, putting(stores)
    stores.outbox.add(channel(1))
    policy = gates.policy("release")
    review = PayloadReview(
        id="", payload="d" * 64, level="reviewed", by="ann", token="t-1", at=BEGIN, expires=LATER
    )
    for n in range(3):
        token = Token(f"t{n}", "ci", Scope.RUN, BEGIN, None)
        stores.tokens.add(token, f"secret {n}")
        session = replace(SESSION, id=f"s{n}")
        stores.browser_sessions.add(session, f"session {n}", id_token=None)
        gates.add_review(review)
        gates.add_approval("release", Approval(by=f"p{n}", at=BEGIN, evidence="f" * 64))
        gates.put_policy(replace(policy, digest=f"{n}" * 64))
        put("fail", f"k-{n}", lineage=f"l-{n}")
    tests = stores.tests.page(product=None, job=None, contains="", limit=4, after=None)
    stores.aliases.suggest(
        Alias(
            id=0, product=tests[0].product, job="", old="", new="", change=NameChange.RENAMED,
            old_test=tests[0].id, new_test=newer.id, similarity=0.9, state=AliasState.SUGGESTED,
            suggested_at=BEGIN,
        )
        for newer in tests[1:]
    )  # fmt: skip
    said = [SAID | {"text": f"Pin torch {n}."} for n in range(3)]
    answer = api.client.post(f"{API}/runs/latest/annotations", json={"annotations": said})
    assert answer.status_code == 201, answer.text


def read(api: Desk, path: str, **asked: object) -> dict[str, Any]:
    answer = api.client.get(f"{API}/{path}", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def route_of(path: str) -> str:
    parts = path.partition("?")[0].split("/")
    return f"{API}/" + "/".join(NAMED.get(part, part) for part in parts)


def cursors(api: Desk) -> dict[str, set[str]]:
    """Per route, the parameter that takes `next` of the page before."""
    named = {
        path: {one["name"] for one in methods.get("get", {}).get("parameters", ())}
        for path, methods in api.app.openapi()["paths"].items()
    }
    return {path: names & {"after", "before"} for path, names in named.items() if "limit" in names}


@pytest.mark.parametrize("path", LISTS)
def test_pages_are_the_list(api: Desk, path: str) -> None:
    path, _, query = path.partition("?")
    filters = dict([query.split("=")]) if query else {}
    whole = read(api, path, limit=200, **filters)
    assert whole["next"] is None
    assert len(whole["items"]) >= LISTS["?".join(filter(None, (path, query)))]
    (cursor,) = cursors(api)[route_of(path)]
    following, found = {}, []
    for left in range(len(whole["items"]), 0, -1):
        page = read(api, path, limit=1, **filters, **following)
        assert len(page["items"]) == 1
        assert (page["next"] is None) == (left == 1)
        found += page["items"]
        following = {cursor: page["next"]}
    assert found == whole["items"]


def test_every_list_with_pages_is_walked(api: Desk) -> None:
    paged = {path for path, named in cursors(api).items() if named}
    assert paged == {route_of(path) for path in LISTS} | UNWALKED


def test_an_item_that_is_gone_hides_no_other(api: Desk) -> None:
    stores = api.context.stores
    for name in ("s9", "sa"):
        stores.browser_sessions.add(replace(SESSION, id=name), name, id_token=None)
    stores.browser_sessions.end("s9")
    found = read(api, "sessions", after="s9")
    stores.browser_sessions.end("sa")
    assert [one["id"] for one in found["items"]] == ["sa"]


class InProcess(Seatrial):
    """The client, without a connection between it and the controller."""

    def __init__(self, api: Desk) -> None:
        self.api = api

    def get(self, path: str, **params: str | int | None) -> dict[str, Any]:
        said = {name: value for name, value in params.items() if value is not None}
        return read(self.api, path.removeprefix("/"), **said)


@pytest.fixture
def client(api: Desk, monkeypatch: pytest.MonkeyPatch) -> Seatrial:
    monkeypatch.setattr(transport, "_PAGE", 1)
    return InProcess(api)


def test_a_command_reads_on(api: Desk, client: Seatrial) -> None:
    every = read(api, "aliases")["items"]
    assert client.every("/aliases", state="suggested") == {"items": every}
    assert client.every("/aliases", product="none") == {"items": []}
    runs = read(api, "runs")["items"]
    assert list(newest(client, "/runs", limit=2)) == runs[:2]
    assert list(newest(client, "/runs", limit=99)) == runs


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        ("channels/c-1/deliveries", lambda client: client.deliveries("c-1", limit=99)),
        ("gates", Seatrial.gates),
        ("gates/release/policies", lambda client: client.policies("release")),
        ("gates/release/verdicts", lambda client: client.verdicts("release", limit=99)),
        ("known-issues", Seatrial.known_issues),
        ("payload-reviews", Seatrial.payload_reviews),
        ("quarantines", Seatrial.quarantines),
        ("schedules", Seatrial.schedules),
        ("sessions", Seatrial.sessions),
        ("tokens", Seatrial.tokens),
        ("waivers", Seatrial.waivers),
    ],
)
def test_the_client_reads_every_page(
    api: Desk, client: Seatrial, path: str, listed: Callable[[Seatrial], AnswerList[object]]
) -> None:
    found = listed(client)
    assert found.json["items"] == read(api, path)["items"]
    assert len(found.records) >= LISTS[path]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("waivers", {"after": "one"}),
        ("waivers", {"after": -1}),
        ("waivers", {"limit": 0}),
        ("tokens", {"after": "a\x00"}),
        ("tokens", {"limit": 1001}),
        ("audit", {"before": 2**60}),
    ],
)
def test_what_is_no_page_is_refused(api: Desk, path: str, asked: dict[str, object]) -> None:
    assert api.client.get(f"{API}/{path}", params=asked).status_code == 422
