"""What must not break it: strangers, machines that lie, many at once, and faults of our own."""

from __future__ import annotations

import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from orchestrator.api.app import create_app
from tests.integration.api_context import MATRIX, Desk, served

RUNS = "/api/v1/runs"


def post(api: Desk, content: bytes, path: str = RUNS, kind: str = "application/json"):
    headers = {"Idempotency-Key": "k", "Content-Type": kind}
    return api.client.post(path, content=content, headers=headers)


def assert_problem(answer, *statuses: int) -> None:
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("urn:seatrial:problem:")
    assert problem["title"]
    assert problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/nope", 404),
        ("GET", "/api/v1", 404),
        ("GET", "/api/v1/runs/", 404),
        ("GET", "/api/v2/runs", 404),
        ("GET", "/docs/static/../../app.py", 404),
        ("GET", "/docs/static/%2e%2e/app.py", 404),
        ("GET", "/docs/static/%00", 404),
        ("DELETE", "/api/v1/runs", 405),
        ("PATCH", "/api/v1/runs/latest", 405),
        ("POST", "/healthz", 405),
        ("PUT", "/docs", 405),
        ("POST", "/docs/static/docs.js", 405),
        ("BREW", "/api/v1/runs", 405),
    ],
)
def test_what_does_not_exist_is_a_problem_document(
    shared_api: Desk, method: str, path: str, status: int
) -> None:
    assert_problem(shared_api.client.request(method, path), status)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"matrix": }',
        b"\x00",
        b"{'matrix': 'x'}",
        b"\xff\xfe\x00",
        b'{"matrix": "\x80"}',
        b"[" * 400_000,
        b'{"a":' * 150_000,
        b"9" * 10_000,
    ],
    ids=["open", "empty", "nul", "quotes", "utf16", "utf8", "deep", "deeper", "long"],
)
def test_what_is_not_json_is_refused(shared_api: Desk, content: bytes) -> None:
    assert_problem(post(shared_api, content), 400, 422)


def test_json_that_breaks_off_is_refused_with_line_and_column(shared_api: Desk) -> None:
    answer = post(shared_api, b'{\n  "matrix": nope\n}')
    assert_problem(answer, 400)
    error = answer.json()["errors"][0]
    assert (error["line"], error["column"]) == (2, 13)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "x", ""])
def test_json_that_is_not_called_json_is_refused(shared_api: Desk, kind: str) -> None:
    answer = post(shared_api, json.dumps({"matrix": MATRIX}).encode(), kind=kind)
    assert_problem(answer, 422)
    assert "sent with `Content-Type: application/json`" in answer.json()["detail"]


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    "matrix",
    [
        nested(50),
        nested(400),
        nested(900),
        '{"apiVersion": NaN}',
        '{"limits": {"max_usd": 1e999}}',
        '{"limits": {"max_usd": -Infinity}}',
        '{"limits": {"max_minutes": ' + "9" * 4000 + "}}",
        '{"\\ud800": "\\udfff"}',
        '{"metadata": {"name": "\\u0000"}}',
        '"\\ud800"',
        '"\\u0000"',
        '""',
        '"&a [*a, *a]"',
        '"' + "- " * 1000 + '"',
        '"' + "[" * 1000 + '"',
        '"a: &a [x, x]\\nb: &b [*a, *a]\\nc: &c [*b, *b]\\nd: [*c, *c]"',
    ],
)
def test_a_matrix_of_nonsense_is_refused(shared_api: Desk, matrix: str) -> None:
    for path in (RUNS, "/api/v1/plan"):
        answer = post(shared_api, b'{"matrix": ' + matrix.encode() + b"}", path)
        assert_problem(answer, 400, 422)
    assert shared_api.client.get(RUNS).json()["items"] == []


def test_a_name_that_is_no_unicode_is_answered(shared_api: Desk) -> None:
    body = b'{"matrix": "x", "name": "\\ud800\\u0000"}'
    assert_problem(post(shared_api, body), 422)


def test_an_internal_fault_leaks_nothing(shared_api: Desk) -> None:
    def fail() -> str:
        raise RuntimeError("postgresql://user:hunter2@db/seatrial")

    broken = create_app(replace(shared_api.context, builtin_payload=fail), guard=None)
    client = shared_api.speak(broken)
    answer = client.post(RUNS, json={"matrix": MATRIX}, headers={"Idempotency-Key": "k"})
    assert_problem(answer, 500)
    for word in ("hunter2", "RuntimeError", "Traceback", "postgresql"):
        assert word not in answer.text


def test_a_database_that_is_gone_is_not_ready_and_says_no_more(shared_api: Desk) -> None:
    def gone() -> str:
        raise RuntimeError("postgresql://user:hunter2@db/seatrial")

    broken = create_app(shared_api.context, guard=None, revision=gone)
    client = shared_api.speak(broken)
    answer = client.get("/readyz")
    assert_problem(answer, 503)
    assert "hunter2" not in answer.text
    assert client.get("/healthz").status_code == 200
    at = shared_api.database.check().current
    assert shared_api.client.get("/readyz").json() == {"status": "ok", "revision": at}


def test_figures_tell_what_goes_on(api: Desk) -> None:
    run = str(api.launch()["id"])
    api.begin(run, "here")
    lines = api.client.get("/metrics").text.splitlines()
    assert 'seatrial_runs{outcome="",state="running"} 1.0' in lines
    assert 'seatrial_cells{outcome="",state="queued"} 1.0' in lines
    assert 'seatrial_cells{outcome="",state="running"} 1.0' in lines
    assert "seatrial_event_streams 0.0" in lines


def test_what_a_machine_says_cannot_break_the_run_that_shows_it(api: Desk) -> None:
    run = str(api.launch()["id"])
    agent = api.begin(run, "here")
    nasty = "\ud800\x00<script>\u2028\r\n" + "💥" * 1000
    odd = {"n": float("nan"), "i": float("inf"), "big": 10**400, nasty: [nasty, None, {"": 1}]}
    agent.send(
        agent.line("environment", packages={nasty: nasty, "n": 3}, machine=odd, os=nasty),
        agent.line("log", "unit", level=nasty, message=nasty),
        agent.line("phase", "unit", name="started"),
        agent.line("metric", "unit", metric=nasty, samples=[1, nasty], unit="x", params=odd),
        agent.line("check", "unit", check=nasty, outcome=nasty, value=odd),
        agent.manifest(nasty),
        agent.test(nasty, "failed", longrepr=nasty),
    )
    answer = api.client.get(f"{RUNS}/{run}")
    assert answer.status_code == 200, answer.text
    cell = answer.json()["cells"][0]
    assert cell["packages"]["n"] == "3"
    assert cell["jobs"][0]["counts"]["failed"] == 1
    tests = api.client.get(f"{RUNS}/{run}/cells/here/tests")
    assert "<script>" in tests.json()["items"][0]["nodeid"]
    assert tests.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in tests.headers["content-security-policy"]


def test_huge_headers_and_addresses_end_only_their_own_connection(api: Desk) -> None:
    with served(api.app) as port:
        for request in (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
            b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x00\xa5" + b"\x00" * 100,
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), 60) as raw:
                send(raw, request)
        many = {f"X-{n}": "y" * 100 for n in range(200)}
        assert (
            httpx.get(f"http://127.0.0.1:{port}/healthz", headers=many, timeout=60).status_code
            == 200
        )


def send(raw: socket.socket, request: bytes) -> None:
    try:
        raw.sendall(request)
        answered = raw.recv(4096)
    except ConnectionError:
        return
    assert answered == b"" or b" 400 " in answered.split(b"\r\n")[0] + b" "


def test_many_readers_do_not_disturb_a_writer_nor_it_them(api: Desk) -> None:
    run = str(api.launch()["id"])
    agent = api.begin(run, "here")
    agent.send(agent.line("phase", "unit", name="started"))
    stop = threading.Event()
    written = []

    def write() -> None:
        while not stop.is_set():
            name = f"t.py::test_{len(written)}"
            assert agent.send(agent.manifest(name), agent.test(name))
            written.append(name)

    with served(api.app) as port:
        writer = threading.Thread(target=write)
        writer.start()
        paths = ["", f"/{run}", f"/{run}/cells/here/tests?limit=1000", f"/{run}/cells/here/log"]
        here = f"http://127.0.0.1:{port}{RUNS}"
        with httpx.Client(timeout=60) as client, ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda n: client.get(here + paths[n % 4]), range(40)))
        stop.set()
        writer.join()
    assert {answer.status_code for answer in answers} == {200}
    assert len(written) > 3
    shown = api.client.get(f"{RUNS}/{run}").json()
    assert shown["counts"]["passed"] == len(written)
    assert shown["counts"]["missing"] == 0


def test_a_method_that_is_not_possible_is_answered_with_all_that_are(api: Desk) -> None:
    """Of the document of the interface: every path, and every method of it."""
    paths = api.client.get("/openapi.json").json()["paths"]
    for path, operations in paths.items():
        answer = api.client.request("BREW", re.sub(r"{[^}]*}", "0" * 64, path))
        assert answer.status_code == 405, path
        allowed = set(answer.headers["allow"].split(", "))
        assert allowed >= {method.upper() for method in operations}, path
