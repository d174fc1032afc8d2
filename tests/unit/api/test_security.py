"""Which hosts are answered, and how much is read of whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from fastapi import Request

from orchestrator.api.errors import BodyTooLargeError
from orchestrator.api.security import HostNameCheck, bounded, credential_of
from orchestrator.application.tokens import Credential


def status(hosts: Iterable[str], allowed: tuple[str, ...] = ()) -> int:
    """How a request with these Host headers is answered."""
    sent: list[dict[str, object]] = []

    async def application(scope: object, receive: object, send: object) -> None:
        sent.append({"status": 200})

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    scope = {"type": "http", "path": "/x", "headers": headers}
    asyncio.run(HostNameCheck(application, allowed=allowed)(scope, None, send))
    return int(str(sent[0]["status"]))


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8470", "LOCALHOST:1", "127.0.0.1:80", "[::1]", "[::1]:8470"]
)
def test_the_loopback_is_answered(host: str) -> None:
    assert status([host]) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
        "evil.example:localhost", "[::1].evil.example", "[::1", "::1", "",
        "localhost, evil.example", "10.0.0.1", "\xff",
    ],
)  # fmt: skip
def test_any_other_name_is_refused(host: str) -> None:
    assert status([host]) == 400


def test_a_configured_name_is_answered_without_its_case_and_port() -> None:
    assert status(["Trials.Example:443"], ("trials.example",)) == 200
    assert status(["[2001:db8::1]:443"], ("2001:db8::1",)) == 200


def test_one_host_header_it_must_be() -> None:
    assert status([]) == 400
    assert status(["localhost", "localhost"]) == 400


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        (None, None), ("", None), ("Bearer", None), ("Bearer ", None), ("Basic seatrial_x", None),
        ("Bearer seatrial_x", "seatrial_x"), ("bearer  seatrial_x ", "seatrial_x"),
    ],
)  # fmt: skip
def test_a_secret_comes_as_bearer(header: str | None, secret: str | None) -> None:
    headers = [] if header is None else [(b"authorization", header.encode())]
    found = credential_of(asked("POST", headers))
    assert found == (None if secret is None else Credential(secret))


@pytest.mark.parametrize(
    ("method", "found"),
    [("GET", Credential("x", is_session=True)), ("HEAD", Credential("x", is_session=True)),
     ("POST", None)],
)  # fmt: skip
def test_a_browsers_session_only_reads(method: str, found: Credential | None) -> None:
    headers = [(b"host", b"127.0.0.1:8470"), (b"cookie", b"seatrial_8470=x")]
    assert credential_of(asked(method, headers)) == found


def test_a_session_of_another_port_is_another_controllers() -> None:
    headers = [(b"host", b"127.0.0.1:8471"), (b"cookie", b"seatrial_8470=seatrial_x")]
    assert credential_of(asked("GET", headers)) is None


def asked(method: str, headers: list[tuple[bytes, bytes]]) -> Request:
    return Request({"type": "http", "method": method, "headers": headers})


def read(chunks: list[bytes], *, limit: int, announced: str | None = None) -> tuple[bytes, int]:
    """What is read of a body, and how many chunks were taken for it."""
    headers = [] if announced is None else [(b"content-length", announced.encode())]
    taken = 0

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": chunks[taken - 1], "more_body": taken < len(chunks)}

    async def whole() -> bytes:
        request = Request({"type": "http", "headers": headers, "method": "PUT"}, receive)
        return b"".join([part async for part in bounded(request, limit)])

    try:
        return asyncio.run(whole()), taken
    except BodyTooLargeError:
        return b"too large", taken


def test_a_body_of_exactly_the_limit_is_taken() -> None:
    assert read([b"ab", b"cd"], limit=4) == (b"abcd", 2)


def test_one_byte_more_ends_the_reading_there() -> None:
    assert read([b"ab", b"cde", b"never"], limit=4) == (b"too large", 2)


@pytest.mark.parametrize("announced", ["5", "9" * 5000])
def test_what_is_announced_as_too_large_is_not_read_at_all(announced: str) -> None:
    assert read([b"x"], limit=4, announced=announced) == (b"too large", 0)


def test_an_announcement_that_lies_does_not_help() -> None:
    assert read([b"ab", b"cde"], limit=4, announced="2") == (b"too large", 2)
    assert read([b"ab"], limit=4, announced="²") == (b"ab", 1)
