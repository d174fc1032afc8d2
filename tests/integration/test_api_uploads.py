"""Uploads: bounded, checked while they come, and gone when they do not end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.files.home_folder import temporary_folder
from tests.integration.api_context import Desk, archive, served, sha256
from tests.waiting import until

PAYLOADS, SUBJECTS = "/api/v1/payloads", "/api/v1/subjects"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Where uploads are received."""
    return temporary_folder(tmp_path)


@pytest.fixture
def api(api: Desk, spool: Path) -> Iterator[Desk]:
    yield api
    assert list(spool.iterdir()) == []


def test_a_payload_is_new_once_and_known_ever_after(api: Desk) -> None:
    data = archive()
    address = f"{PAYLOADS}/{sha256(data)}"
    assert api.client.head(address).status_code == 404
    made = api.client.put(address, content=data)
    assert made.status_code == 201
    assert made.json() == {
        "digest": sha256(data),
        "size_bytes": len(data),
        "name": "proof",
        "version": "1.10",
        "jobs": ["unit", "demo"],
    }
    again = api.client.put(address, content=data)
    assert (again.status_code, again.json()) == (200, made.json())
    assert api.client.get(address).json() == made.json()
    head = api.client.head(address)
    assert (head.status_code, head.content) == (200, b"")


def test_bytes_of_another_digest_are_refused_even_where_it_is_known(api: Desk) -> None:
    data = archive()
    address = f"{PAYLOADS}/{sha256(data)}"
    for known in (False, True):
        answer = api.client.put(address, content=data + b"x")
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:seatrial:problem:digest-mismatch"
        assert sha256(data + b"x") in answer.json()["detail"]
        assert api.client.head(address).status_code == (200 if known else 404)
        api.client.put(address, content=data)
    assert b"".join(api.context.blobs.open(sha256(data))) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        archive("nonsense = "),
        archive('schema = 1\nname = "x"\nversion = "1"\n'),
        archive(**{"../escape": "x"}),
        archive()[:-20],
    ],
    ids=["empty", "bytes", "toml", "no jobs", "escape", "torn"],
)
def test_what_is_no_payload_is_not_stored(api: Desk, data: bytes) -> None:
    address = f"{PAYLOADS}/{sha256(data)}"
    answer = api.client.put(address, content=data)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert api.client.get(address).status_code == 404
    assert not api.context.blobs.has(sha256(data))


def test_a_bad_manifest_is_refused_with_its_place(api: Desk) -> None:
    data = archive('schema = 1\nname = "x"\nversion = 1.10\n[[job]]\nid = "a"\nkind = "demo"\n')
    error = api.client.put(f"{PAYLOADS}/{sha256(data)}", content=data).json()["errors"][0]
    assert (error["pointer"], error["line"]) == ("/version", 3)


@pytest.mark.parametrize("digest", ["0" * 63, "0" * 65, "A" * 64, "g" * 64, "%00" * 64, "latest"])
def test_a_digest_must_be_one(api: Desk, digest: str) -> None:
    for method in ("PUT", "GET"):
        answer = api.client.request(method, f"{PAYLOADS}/{digest}")
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["parameter"] == "sha256"


def test_a_subject_is_stored_by_its_digest(api: Desk) -> None:
    data = b"PK\x03\x04 a wheel" * 200_000
    address = f"{SUBJECTS}/{sha256(data)}"
    made = api.client.put(address, content=data)
    assert made.status_code == 201
    assert made.json() == {"digest": sha256(data), "size_bytes": len(data)}
    assert api.client.put(address, content=data).status_code == 200
    assert b"".join(api.context.blobs.open(sha256(data))) == data
    assert api.client.put(f"{SUBJECTS}/{'1' * 64}", content=data).status_code == 422


@pytest.mark.parametrize(("kind", "size"), [(PAYLOADS, 2 * 1024**3), (SUBJECTS, 4 * 1024**3)])
def test_what_is_announced_as_too_large_is_refused_at_once(api: Desk, kind: str, size: int) -> None:
    with served(api.app) as port, socket.create_connection(("127.0.0.1", port), 60) as raw:
        raw.sendall(head(f"{kind}/{'0' * 64}", size + 1))
        assert b"413" in raw.recv(4096).split(b"\r\n")[0]


def test_an_upload_that_is_cut_off_leaves_nothing(api: Desk, spool: Path) -> None:
    data = b"x" * 3_000_000
    with served(api.app) as port:
        raw = socket.create_connection(("127.0.0.1", port), 60)
        raw.sendall(head(f"{SUBJECTS}/{sha256(data)}", len(data)) + data[:-1])
        until(lambda: any(path.stat().st_size > 1_000_000 for path in spool.glob("*/body")))
        raw.close()
        until(lambda: list(spool.iterdir()) == [])
        assert not api.context.blobs.has(sha256(data))
        with socket.create_connection(("127.0.0.1", port), 60) as well:
            well.sendall(head(f"{SUBJECTS}/{sha256(data)}", len(data)) + data)
            assert b"201" in well.recv(4096).split(b"\r\n")[0]


def head(path: str, size: int) -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
