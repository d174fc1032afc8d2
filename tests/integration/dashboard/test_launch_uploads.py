"""Launching one's own payload from the page: a folder, an archive, a wheel, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.dashboard import session
from tests.integration.api_context import MANIFEST, MATRIX, archive, sha256
from tests.integration.dashboard.desk import HOST, PageDesk
from tests.integration.dashboard.shown import Element, read_page
from tests.integration.dashboard.test_launch import values_of

MINE = MANIFEST.replace('name = "proof"', 'name = "mine"')
Files = list[tuple[str, tuple[str, bytes]]]


def send(pages: PageDesk, files: Files, *, status: int = 200, **fields: Any) -> Element:
    values = {"csrf": pages.viewer.csrf(), "text": MATRIX, "action": "plan", **fields}
    headers = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    answer = pages.client.post(
        "/launch", data=values, files=files, headers=headers, follow_redirects=False
    )
    assert answer.status_code == status, answer.text[:3000]
    return read_page(answer.text)


def folder(manifest: str = MINE, **more: bytes) -> Files:
    """What a browser sends of the folder `proj`."""
    inside = {"payload.toml": manifest.encode(), "demo.py": b"print(1)\n", **more}
    return [("folder", (f"proj/{name}", content)) for name, content in inside.items()]


def payload_of(shown: Element) -> str:
    digest: str = shown.one("input", id="payload")["value"]
    return digest


def test_a_folder_is_packed_planned_and_launched(pages: PageDesk) -> None:
    kept_back = {".git/config": b"[core]\n\tfsmonitor = touch hit\n", "__pycache__/x.pyc": b"0"}
    shown = send(pages, folder(**{"tests/test_a.py": b"", **kept_back}))
    assert "mine 1.10, 2 jobs: unit, demo" in shown.text
    assert shown.one("button", value="start")
    started = pages.post("/launch", **(values_of(shown) | {"action": "start"}))
    run = pages.stores.runs.get(started.headers["location"].removeprefix("/runs/"))
    assert run.payload_digest == payload_of(shown)
    assert pages.stores.payloads.get(run.payload_digest).manifest.name == "mine"
    again = send(pages, folder(**{"tests/test_a.py": b""}))
    assert payload_of(again) == run.payload_digest, "what was kept back changes nothing"


def test_an_archive_is_taken_as_it_is(pages: PageDesk) -> None:
    packed = archive(MINE)
    shown = send(pages, [("archive", ("mine.tar.gz", packed))])
    assert payload_of(shown) == sha256(packed)
    assert "mine 1.10" in shown.text


def test_a_wheel_is_the_subject(pages: PageDesk) -> None:
    wheel = b"PK of a wheel"
    shown = send(pages, [("wheel_file", ("a-1-py3-none-any.whl", wheel))])
    assert shown.one("input", id="wheel")["value"] == sha256(wheel)
    assert pages.api.context.blobs.has(sha256(wheel))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (folder("schema = 2\n"), "schema"),
        (folder(f'root = ".."\n{MINE}'), "outside of this folder"),
        ([("folder", ("proj/a.py", b""))], "no payload.toml at the top"),
        ([("folder", ("payload.toml", MINE.encode()))], "choose a folder, not files"),
        (folder(**{"../../evil.py": b""}), "cannot be packed"),
        (folder(**{"a\\b.py": b""}), "cannot be packed"),
        (folder(**{"demo.py/x": b""}), "cannot be written"),
        ([("archive", ("mine.zip", b"PK\x03\x04"))], "pack it as.tar.gz"),
        ([("archive", ("mine.tar.gz", b"\x1f\x8b"))], "the archive is cut off"),
        ([*folder(), ("archive", ("mine.tar.gz", archive(MINE)))], "not both"),
    ],
)
def test_what_is_no_payload_is_refused_with_its_reason(
    pages: PageDesk, files: Files, said: str
) -> None:
    shown = send(pages, files, status=422)
    assert said in shown.one("section", "notice").text
    assert payload_of(shown) == ""
    assert not list(pages.api.context.scratch.glob("seatrial-folder-*"))


def test_too_much_is_refused_before_it_is_read(
    pages: PageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "UPLOAD_LIMIT_BYTES", 10_000)
    shown = send(pages, folder(**{"large.bin": b"0" * 20_000}), status=413)
    assert "`seatrial run` sends more" in shown.text


def test_it_needs_the_scope_and_a_form_of_this_session(pages: PageDesk) -> None:
    send(pages, folder(), status=403, csrf="no")
    send(pages.as_viewer("read"), folder(), status=403)
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    values = {"csrf": pages.viewer.csrf(), "text": MATRIX}
    answer = pages.client.post("/launch", data=values, files=folder(), headers=headers)
    assert answer.status_code == 403
    assert not pages.stores.payloads.get(sha256(archive(MINE)))
