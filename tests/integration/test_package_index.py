"""What an index on loopback says of wheels, and what it may fail to say."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.adapters.files.package_index import origin, split_credentials
from orchestrator.adapters.files.pip import Outward, anywhere, guarded
from orchestrator.adapters.files.wheels import Wheelhouse
from orchestrator.application.ports.wheels import WheelsError, WheelSizes
from orchestrator.domain.manifest import Environment
from tests.integration.test_git_subjects import listener
from tests.integration.test_wheels import NONE, Frozen, target

PAGE = "/simple/top/"
TOP = Environment(pip=("top",))
WHEEL = "top-1-py3-none-any.whl"


class Index(ThreadingHTTPServer):
    """A package index on loopback, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.authorization = ""
        """The header that every request must have; empty if none is needed."""


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        index = cast("Index", self.server)
        index.asked.append(f"{self.command} {self.path}")
        if index.authorization and self.headers["Authorization"] != index.authorization:
            self.send_error(401)
            return
        kind, body = index.answers.get(self.path, ("", b""))
        if kind == "broken":
            self.wfile.write(body)
            return
        self.send_response({"": 404, "moved": 302}.get(kind, 200))
        if kind == "moved":
            self.send_header("Location", body.decode())
            body = b""
        self.send_header("Content-Type", kind or "text/plain")
        if kind != "unsized":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def started() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def clock() -> Frozen:
    return Frozen()


@pytest.fixture
def house(tmp_path: Path, clock: Frozen) -> Wheelhouse:
    return Wheelhouse(tmp_path / "wheels", clock=clock)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    for name in ("http_proxy", "https_proxy", "no_proxy"):  # urllib prefers these
        monkeypatch.delenv(name, raising=False)
    with started() as server:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "0")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


def in_json(*files: dict[str, Any]) -> tuple[str, bytes]:
    return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()


def test_an_index_is_asked_for_sizes_and_needs_and_for_no_wheel(
    house: Wheelhouse, index: Index
) -> None:
    wheel = {"url": "/files/top-1-py3-none-any.whl", "filename": "top-1-py3-none-any.whl"}
    newer = {"url": "/files/top-2.whl", "filename": "top-2-py3-none-any.whl"}
    told = {"size": 1_000_000, "core-metadata": True, "requires-python": ">=3.9"}
    index.answers[PAGE] = in_json(
        wheel | told,
        newer | told | {"requires-python": ">=3.12"},
        newer | told | {"yanked": "broken"},
        {"filename": "top-3.tar.gz", "url": "/files/top-3.tar.gz"},
    )
    needs = b"Metadata-Version: 2.1\nName: top\nVersion: 1\nRequires-Dist: bottom\n"
    index.answers["/files/top-1-py3-none-any.whl.metadata"] = "text/plain", needs
    page = '<a href="/files/bottom-4-py3-none-any.whl#sha256=0" data-core-metadata="x">bottom</a>'
    index.answers["/simple/bottom/"] = "text/html", page.encode()
    index.answers["/files/bottom-4-py3-none-any.whl"] = "application/zip", b"x" * 500
    index.answers["/files/bottom-4-py3-none-any.whl.metadata"] = "text/plain", b"Name: bottom\n"
    found = house.sizes(target(), Environment(pip=("top",)), subject=NONE)
    assert found == WheelSizes({"bottom": "4", "top": "1"}, 1_000_500, {})
    assert [one for one in index.asked if one.startswith("HEAD")] == [
        "HEAD /files/bottom-4-py3-none-any.whl"
    ]
    assert not [one for one in index.asked if one.startswith("GET") and one.endswith(".whl")]


def test_a_size_that_nobody_states_is_unknown_and_never_nothing(
    house: Wheelhouse, index: Index, clock: Frozen
) -> None:
    page = '<a href="/files/top-1-py3-none-any.whl">top</a>'
    index.answers[PAGE] = "text/html", page.encode()
    index.answers["/files/top-1-py3-none-any.whl"] = "unsized", b""
    asked = Environment(pip=("top",))
    found = house.sizes(target(), asked, subject=NONE)
    assert (found.packages, found.size_bytes) == ({"top": "1"}, 0)
    assert found.unknown == {"top": "its index does not say what it needs"}
    index.answers["/files/top-1-py3-none-any.whl"] = "application/zip", b"x" * 70
    requests = len(index.asked)
    assert house.sizes(target(), asked, subject=NONE) == found  # it is not asked at every look
    assert len(index.asked) == requests
    clock.time += timedelta(minutes=6)
    assert house.sizes(target(), asked, subject=NONE).size_bytes == 70


def test_an_index_that_is_silent_leaves_sizes_unknown(
    house: Wheelhouse, monkeypatch: pytest.MonkeyPatch, index: Index
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"ftp://127.0.0.1:{index.server_port}/simple")
    found = house.sizes(target(), Environment(pip=("top",)), subject=NONE)
    assert (found.packages, list(found.unknown)) == ({}, ["top"])
    assert "is no address of a server" in found.unknown["top"]


def test_a_guard_of_addresses_holds_for_sizes_as_for_wheels(
    tmp_path: Path, clock: Frozen, index: Index
) -> None:
    private = f"https://127.0.0.1:{index.server_port}/links/"
    guarded_house = Wheelhouse(tmp_path / "guarded", clock=clock, outward=guarded)
    asked = Environment(pip=("top",), find_links=(private,))
    with pytest.raises(WheelsError, match=r"is not asked: .*this computer's own"):
        guarded_house.sizes(target(), asked, subject=NONE)
    assert index.asked == []


@pytest.mark.parametrize("is_moved", [False, True])
def test_an_indexs_credentials_are_sent_to_its_server_and_shown_nowhere(
    house: Wheelhouse, index: Index, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    commands: list[str] = []
    started = subprocess.run

    def run(argv: Any, **more: Any) -> Any:
        commands.append(str(argv))
        return started(argv, **more)

    monkeypatch.setattr(subprocess, "run", run)
    there = f"127.0.0.1:{index.server_port}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me%40x:S3CRET%2F1@{there}")
    index.authorization = "Basic " + base64.b64encode(b"me@x:S3CRET/1").decode()
    page = "text/html", f'<a href="/files/{WHEEL}">top</a>'.encode()
    index.answers[PAGE] = ("moved", b"/moved/top/") if is_moved else page
    index.answers["/moved/top/"] = page
    index.answers[f"/files/{WHEEL}"] = "application/zip", b"x" * 70
    found = house.sizes(target(), TOP, subject=NONE)
    assert (found.packages, found.size_bytes) == ({"top": "1"}, 70)
    index.authorization = "Basic other"
    refused = house.sizes(target(), Environment(pip=("top>0",)), subject=NONE)
    assert refused.unknown == {"top": f"http://{there}/top/: HTTP Error 401: Unauthorized"}
    assert commands
    assert "S3CRET" not in " ".join(commands)


def test_credentials_are_not_sent_on_to_another_server(
    house: Wheelhouse, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = f"127.0.0.1:{index.server_port}"
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:S3CRET@{there}/simple")
    with started() as other:
        other.authorization = split_credentials("http://me:S3CRET@a")[1]
        index.answers[PAGE] = "moved", f"http://127.0.0.1:{other.server_port}/x".encode()
        found = house.sizes(target(), TOP, subject=NONE)
    assert other.asked == ["GET /x"]
    assert "HTTP Error 401" in found.unknown["top"]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("ftp://me:S3CRET@127.0.0.1:{port}/x", "HTTP Error 302: Found"),
        ("foo://me:S3CRET@127.0.0.1:{port}/x", "HTTP Error 302: Found"),
        ("https://me:S3CRET@[x:{port}/x", "the address is not valid"),
    ],
)
def test_a_redirect_to_no_server_is_not_followed_and_not_shown(
    house: Wheelhouse, index: Index, location: str, why: str
) -> None:
    with listener() as (port, heard):
        index.answers[PAGE] = "moved", location.format(port=port).encode()
        found = house.sizes(target(), TOP, subject=NONE)
    assert heard == []
    page = f"http://127.0.0.1:{index.server_port}{PAGE}"
    assert found.unknown == {"top": f"{page}: {why}"}


@pytest.mark.parametrize("outward", [anywhere, guarded])
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Environment(pip=("top",), find_links=("https://me:S3CRET@[x/links",)), "is not valid"),
        (Environment(pip=("top @ https://[x/top-1-py3-none-any.whl",)), "names no valid address"),
    ],
)
def test_an_address_that_is_not_valid_is_refused(
    tmp_path: Path, clock: Frozen, index: Index, outward: Outward, asked: Environment, why: str
) -> None:
    house = Wheelhouse(tmp_path / "wheels", clock=clock, outward=outward)
    with pytest.raises(WheelsError, match=why) as refused:
        house.sizes(target(), asked, subject=NONE)
    assert "S3CRET" not in str(refused.value)
    assert index.asked == []


def test_a_wheel_that_needs_one_at_no_valid_address_is_refused(
    house: Wheelhouse, index: Index
) -> None:
    offer = {"filename": WHEEL, "url": f"/files/{WHEEL}", "size": 1, "core-metadata": True}
    index.answers[PAGE] = in_json(offer)
    needs = b"Name: top\nVersion: 1\nRequires-Dist: evil @ https://[x/evil-1-py3-none-any.whl\n"
    index.answers[f"/files/{WHEEL}.metadata"] = "text/plain", needs
    with pytest.raises(WheelsError, match=r"top 1 needs what is not fetched: .*no valid address"):
        house.sizes(target(), TOP, subject=NONE)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:pw@Files.example:443/a", "https://files.example"),
        ("HTTP://files.example:80/a", "http://files.example"),
        ("https://files.example:80/a", "https://files.example:80"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://[fd00::80]", "http://[fd00::80]"),
    ],
)
def test_the_port_of_a_scheme_is_no_part_of_a_servers_name(url: str, expected: str) -> None:
    assert origin(url) == expected


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("json", b"<html>log in</html>", "the page is unreadable: Expecting value"),
        ("json", b"[1, 2]", "the page is unreadable: it is JSON without a list of files"),
        ("json", b'{"files": ["a"]}', "the page is unreadable: it is JSON without a list of files"),
        ("json", b"[" * 200_000, "the page is unreadable: "),
        ("broken", b"SSH-2.0-OpenSSH_9\r\n", "SSH-2.0-OpenSSH_9"),
        (
            "broken",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<a",
            "the page ended after 2 of 9 bytes",
        ),
        (
            "broken",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n<a",
            "IncompleteRead",
        ),
    ],
)
def test_an_answer_that_is_no_page_leaves_sizes_unknown(
    house: Wheelhouse, index: Index, kind: str, body: bytes, why: str
) -> None:
    index.answers[PAGE] = in_json()[0] if kind == "json" else kind, body
    found = house.sizes(target(), TOP, subject=NONE)
    assert (found.packages, list(found.unknown)) == ({}, ["top"])
    assert why in found.unknown["top"]
