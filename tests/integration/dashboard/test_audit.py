"""The page of the audit log."""

from __future__ import annotations

import pytest

from orchestrator.dashboard import urls
from tests.integration.api_context import MATRIX
from tests.integration.dashboard.desk import PageDesk, signed_in
from tests.integration.gate_world import put

SCHEDULE = {"name": "nightly", "cron": "0 2 * * *", "tz": "UTC", "matrix": MATRIX}


def test_it_says_who_changed_what(pages: PageDesk) -> None:
    client = pages.api.with_token("admin", name="Ada <b>")
    client.headers["User-Agent"] = "curl/8"
    assert client.post("/api/v1/schedules", json=SCHEDULE).status_code == 201
    changed = {**SCHEDULE, "cron": "0 3 * * *"}
    assert client.put("/api/v1/schedules/nightly", json=changed).status_code == 200
    guest = pages.api.with_token("read", name="guest")
    assert guest.delete("/api/v1/schedules/nightly").status_code == 403
    refused, replaced, added = pages.rows(urls.AUDIT, "entries")[:3]
    assert (refused["actor"], refused["outcome"]) == ("guest", "refused (403)")
    assert (replaced["operation"], replaced["resource"]) == (
        "replace_schedule",
        "schedules/nightly",
    )
    assert replaced["changed"] == "cron"
    assert added["changed"] == "created"
    page = pages.page(urls.AUDIT)
    assert (added["address"], refused["address"]) == ("testclient", "testclient")
    assert "curl/8" in page.one(id="entries").text
    assert "Ada <b>" in page.one(id="entries").text, "as text"
    mine = pages.rows(f"{urls.AUDIT}?actor=guest&resource=schedules", "entries")
    assert [row["number"] for row in mine] == [refused["number"]]
    assert "No entry is like that" in pages.page(f"{urls.AUDIT}?actor=nobody").text


def test_it_has_pages(pages: PageDesk) -> None:
    for number in range(60):
        body = {"name": f"n{number}", "scope": "read"}
        assert pages.api.client.post("/api/v1/tokens", json=body).status_code == 201
    first = pages.rows(urls.AUDIT, "entries")
    rest = pages.rows(f"{urls.AUDIT}?before={first[-1]['number']}", "entries")
    assert len(first) == 50
    assert first[-1]["number"] - 1 == rest[0]["number"]


@pytest.mark.parametrize("path", [urls.AUDIT, urls.RUNS, f"{urls.GATES}/release"])
def test_a_place_that_is_none_is_refused_rather_than_the_first_page(
    pages: PageDesk, path: str
) -> None:
    put(pages.api)
    for before in ("x", "0", "%00", "²"):
        if path != urls.RUNS or before == "%00":
            shown = pages.get(f"{path}?before={before}", status=404).text
            assert "is no place in this list" in shown, before
    pages.get(f"{path}?before=")


def test_it_is_for_administrators(pages: PageDesk) -> None:
    signed_in(pages.api, "gate").get(urls.AUDIT, status=403)
