"""Every GET is answered as RFC 9110 asks: as HEAD too, and with 304 to `If-None-Match: *`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from orchestrator.api.app import PREFIX
from orchestrator.bootstrap.projects import PortApplications
from tests.integration.api_context import Desk

ANY = {"If-None-Match": "*"}


def gets(api: Desk) -> list[str]:
    """The addresses of every GET, of a run that exists and of other things that do not."""
    run = str(api.launch()["id"])
    return [
        route.path.replace("{run_id}", run)
        .replace("{cell_id}", "here")
        .replace("{", "")
        .replace("}", "")
        for route in _routes(api.app.routes)
        if "GET" in (route.methods or ())
    ]


def _routes(routes: Any) -> Iterator[APIRoute]:
    for one in routes:
        if isinstance(one, APIRoute):
            yield one
        else:
            yield from _routes(getattr(getattr(one, "original_router", one), "routes", ()))


def test_head_answers_every_get_without_its_body(api: Desk) -> None:
    paths = [path for path in gets(api) if not path.endswith("/events")]
    assert len(paths) > 50
    for path in paths:
        whole, head = api.client.get(path), api.client.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b""), path
        assert head.headers["content-type"] == whole.headers["content-type"], path
        if whole.headers.get("etag"):
            assert head.headers["etag"] == api.client.get(path).headers["etag"], path


def test_what_exists_matches_any_tag(api: Desk) -> None:
    seen = set()
    for path in gets(api):
        if path.endswith("/events"):
            continue
        code = api.client.get(path).status_code
        for method in ("GET", "HEAD"):
            answer = api.client.request(method, path, headers=ANY)
            assert answer.status_code == (304 if code == 200 else code), path
            assert code != 200 or (answer.content, "content-length" in answer.headers) == (
                b"",
                False,
            )
        seen.add(code)
    assert {200, 404} <= seen


@pytest.mark.parametrize(("method", "headers", "code"), [("HEAD", {}, 200), ("GET", ANY, 304)])
def test_a_stream_of_events_ends_with_its_headers(
    api: Desk, method: str, headers: dict[str, str], code: int
) -> None:
    run = str(api.launch()["id"])
    answer = api.client.request(method, f"{PREFIX}/runs/{run}/events", headers=headers)
    assert (answer.status_code, answer.content) == (code, b"")


def test_head_has_the_method_of_changes_refused_and_its_own_routes(api: Desk) -> None:
    run = str(api.launch()["id"])
    assert api.client.head(f"{PREFIX}/runs/{run}/cancel").status_code == 405
    assert api.client.head(f"{PREFIX}/payloads/{'0' * 64}").status_code == 404
    assert api.speak(api.guarded).head(f"{PREFIX}/runs").status_code == 401


def test_pages_match_any_tag_too(api: Desk) -> None:
    whole = PortApplications.from_contexts([api.context], (), None).application
    client: TestClient = api.speak(whole)
    assert client.get("/login").status_code == client.head("/login").status_code == 200
    for method in ("GET", "HEAD"):
        assert client.request(method, "/login", headers=ANY).status_code == 304
        assert client.request(method, "/nowhere", headers=ANY).status_code != 304
