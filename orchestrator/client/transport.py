"""Transport of requests to a controller: retries, typed errors, records of answers."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import httpx
from pydantic import TypeAdapter, ValidationError

from orchestrator.client.connection import ControllerConnection
from orchestrator.client.errors import NoControllerError, RefusalError, UnreadableAnswerError

API = "/api/v1"
Json = dict[str, object]
PAUSES_S = (0.2, 0.5, 1.0, 2.0)
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_IN_FLIGHT = 409
_UNKNOWN = frozenset({404, 405, 501})
_CHUNK_BYTES = 1 << 20
_LOG_PART_BYTES = 1 << 20
_PAGE = 200
"""Maximum number of items on a page of a list."""
_LONGEST_WAIT_S = 600
"""Maximum seconds for which a request waits because the controller has too many of them (429)."""
_WORK_S = 3600.0
"""Maximum seconds for which an upload's answer is waited for."""


_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
T = TypeVar("T")


class WallClock(Protocol):
    """The clock, which can also wait."""

    def now(self) -> datetime:
        """Return the current time in UTC, with its zone."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


@dataclass(frozen=True)
class Answer(Generic[T]):
    """One JSON object that the controller answered."""

    json: Json
    """The object as it was sent, with the fields that this version does not know."""
    kind: type[T] = field(repr=False)

    @cached_property
    def record(self) -> T:
        """Parse the answer into its record. Raises UnreadableAnswerError."""
        return read(self.kind, self.json)


@dataclass(frozen=True)
class AnswerList(Generic[T]):
    """A list of items that the controller answered."""

    json: Json
    kind: type[T] = field(repr=False)

    @cached_property
    def records(self) -> tuple[T, ...]:
        """Parse the items into records. Raises UnreadableAnswerError."""
        return read_items(self.kind, self.json)


@dataclass(slots=True)
class _Waits:
    """Seconds for which a request may still wait after 429 answers, over all of its tries."""

    left_s: float


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    params: Mapping[str, str | int | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: object = None
    upload: Callable[[], Iterator[bytes]] | None = None
    """Opens the upload's content; called once per try."""
    document: str = ""
    patience_s: float | None = None
    """Time limit of the answer in seconds; None for the usual limit."""

    @property
    def can_repeat(self) -> bool:
        return self.method != "POST" or "Idempotency-Key" in self.headers

    def send(self, http: httpx.Client) -> httpx.Response:
        return http.request(
            self.method,
            API + self.path,
            params=_given(self.params),
            json=self.json,
            headers=dict(self.headers),
            content=self.upload() if self.upload else None,
            timeout=http.timeout if self.patience_s is None else _patient(self.patience_s),
        )


class Client:
    """Sends requests to one controller. Raises NoControllerError or RefusalError."""

    def __init__(
        self,
        line: ControllerConnection,
        clock: WallClock,
        *,
        pauses_s: Sequence[float] = PAUSES_S,
        timeout_s: float | None = None,
        heard: Callable[[str], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create a client that connects with its first request.

        `pauses_s` are the waits between tries, in seconds; there is one more try than
        waits. `timeout_s` replaces the usual time limits of connections, answers and waits.
        `heard` is called with one line per answer; `say` is called with messages for a
        person while a request waits.
        """
        self._heard = heard
        self._say = say
        self.line = line
        self._clock = clock
        self._pauses_s = pauses_s
        self._timeout_s = timeout_s
        self._http: httpx.Client | None = None

    def get(self, path: str, **params: str | int | None) -> Json:
        """Send a GET, and return the JSON object of the answer."""
        return _object(self._send(_Request("GET", path, params=params)))

    def every(self, path: str, *, cursor: str = "after", **filters: str | int | None) -> Json:
        """Return all items of a list, from all of its pages.

        `cursor` is the query parameter that takes the value ``next`` of the previous page.
        """
        return {"items": [*_listed(self, path, cursor, filters)]}

    def text(self, path: str, **params: str | int | None) -> str:
        """Send a GET, and return the answer as text."""
        return self._send(_Request("GET", path, params=params)).text

    def has(self, path: str) -> bool:
        """Whether the resource exists."""
        try:
            self._send(_Request("HEAD", path))
        except RefusalError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return False
            raise
        return True

    def post(
        self,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        document: str = "",
        **params: str | int | None,
    ) -> Json:
        """Send a POST, and return the JSON object of the answer; with a key it is idempotent.

        `document` is the name of the file that the lines of a refusal belong to.
        """
        headers = {"Idempotency-Key": key} if key else {}
        request = _Request(
            "POST",
            path,
            params=params,
            headers=headers,
            json=dict(body or {}),
            document=document,
        )
        return _object(self._send(request))

    def put(self, path: str, body: Mapping[str, object], *, document: str = "") -> Json:
        """Send a PUT, and return the JSON object of the answer; `document` as in `post`."""
        return _object(self._send(_Request("PUT", path, json=dict(body), document=document)))

    def delete(self, path: str) -> None:
        """Send a DELETE."""
        self._send(_Request("DELETE", path))

    def put_file(self, path: str, file: Path, *, sent: Callable[[int], None]) -> Json:
        """Upload a file by PUT; `sent` is called with the number of bytes sent so far."""
        size = file.stat().st_size
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        request = _Request(
            "PUT",
            path,
            headers=headers,
            upload=lambda: _chunks(file, sent),
            document="payload.toml",
        )
        return _object(self._send(request))

    def post_file(self, path: str, file: Path, *, key: str, **params: str | int | None) -> Json:
        """Upload a file by POST, and wait for the result for up to an hour."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(file.stat().st_size),
            "Idempotency-Key": key,
        }
        request = _Request(
            "POST",
            path,
            params=params,
            headers=headers,
            upload=lambda: _chunks(file, lambda gone: None),
            document="ingest.yaml",
            patience_s=_WORK_S,
        )
        return _object(self._send(request))

    def log_bytes(self, path: str, *, after: int) -> tuple[bytes, int]:
        """Return a part of a log from the byte `after` on, and the offset of the next part."""
        headers = {"Accept": "application/octet-stream"}
        answer = self._send(
            _Request(
                "GET", path, params={"after": after, "limit": _LOG_PART_BYTES}, headers=headers
            )
        )
        return answer.content, int(answer.headers.get("Seatrial-Next-Offset", after))

    @contextlib.contextmanager
    def stream(
        self,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int | None] | None = None,
        silence_s: float = 60.0,
    ) -> Iterator[httpx.Response]:
        """Open a GET whose body is streamed; usable as a context manager.

        Raises NoControllerError after `silence_s` seconds without data.
        """
        timeout = httpx.Timeout(silence_s, connect=5.0)
        try:
            with contextlib.ExitStack() as opened:
                answer = self._in_turn(
                    lambda: opened.enter_context(
                        self._connection().stream(
                            "GET",
                            API + path,
                            params=_given(params or {}),
                            headers=dict(headers or {}),
                            timeout=timeout,
                        )
                    ),
                    self._waits(),
                )
                if answer.is_error:
                    answer.read()
                    raise _refusal(answer)
                yield answer
        except (httpx.TransportError, httpx.StreamError) as error:
            self._drop()
            raise _unreachable(self.line.where, error) from None

    @contextlib.contextmanager
    def _bytes(self, path: str, **params: str | int | None) -> Iterator[Iterator[bytes]]:
        """Open a file of the controller; yields an iterator of its pieces."""
        with self.stream(path, params=params) as answer:
            yield answer.iter_bytes()

    def close(self) -> None:
        """Close the connections."""
        self._drop()

    def _send(self, request: _Request) -> httpx.Response:
        answer = self._persist(request)
        if answer.is_error:
            raise _refusal(answer, request.document)
        return answer

    def _persist(self, request: _Request) -> httpx.Response:
        """Send a request again until its answer is final or the tries are used up."""
        can_repeat, waits = request.can_repeat, self._waits()
        for pause_s in (*self._pauses_s, None):
            try:
                answer = self._in_turn(lambda: request.send(self._connection()), waits)
                took = f"{answer.elapsed.total_seconds():.2f} s"
                self._heard(f"{request.method} {request.path}: {answer.status_code} in {took}")
            except (httpx.TransportError, NoControllerError) as error:
                self._drop()
                # If the connection was never made, nothing was sent.
                unsent = isinstance(error, httpx.ConnectError | NoControllerError)
                if pause_s is None or not (can_repeat or unsent):
                    failure = _unreachable(self.line.where, error)
                    failure.was_sent = not unsent
                    raise failure from None
                self.line.revive()
            else:
                busy = answer.status_code in _TRY_AGAIN or _is_in_flight(answer)
                if pause_s is None or not (busy and can_repeat):
                    return answer
            self._clock.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    def _waits(self) -> _Waits:
        return _Waits(_LONGEST_WAIT_S if self._timeout_s is None else self._timeout_s)

    def _in_turn(self, send: Callable[[], httpx.Response], waits: _Waits) -> httpx.Response:
        """Send a request, and repeat it after each 429 answer that has a Retry-After.

        The controller has done nothing for a 429, so that every request can be repeated.
        """
        while True:
            answer = send()
            said = answer.headers.get("retry-after", "")
            wait_s = max(int(said[:9]), 1) if said.isdecimal() else 0
            if (
                answer.status_code != httpx.codes.TOO_MANY_REQUESTS
                or not 0 < wait_s <= waits.left_s
            ):
                return answer
            answer.read()
            waits.left_s -= wait_s
            self._say(f"there were too many requests; the next one is sent in {wait_s} s")
            self._clock.sleep(wait_s)

    def _connection(self) -> httpx.Client:
        if self._http is None:
            self._http = self.line.open()
            if self._timeout_s is not None:
                self._http.timeout = httpx.Timeout(self._timeout_s)
        return self._http

    def _drop(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def _given(params: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {name: value for name, value in params.items() if value is not None}


def _patient(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=5.0)


def _is_in_flight(answer: httpx.Response) -> bool:
    """Whether an earlier try of the same request is still in progress."""
    return answer.status_code == _IN_FLIGHT and "Idempotency-Key" in answer.request.headers


def _chunks(file: Path, sent: Callable[[int], None]) -> Iterator[bytes]:
    gone = 0
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk
            gone += len(chunk)
            sent(gone)


def _object(answer: httpx.Response) -> Json:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise NoControllerError(_stranger(answer))
    return cast(Json, body)


def _stranger(answer: httpx.Response) -> str:
    """Return the message about an answer that no controller sent, such as a proxy's page."""
    said = _MEDIA_TYPE.match(answer.headers.get("content-type", ""))
    kind = said.group() if said else "no content type"
    return (
        f"{answer.request.url} does not answer like a Seatrial controller, but with "
        f"{answer.status_code} and {kind}; look at SEATRIAL_URL"
    )


def _unreachable(where: str, error: Exception) -> NoControllerError:
    if isinstance(error, NoControllerError):
        return error
    reason = str(error) or type(error).__name__
    said = f"{where} cannot be reached: {reason}"
    if isinstance(error, httpx.RemoteProtocolError) and where.startswith("http://"):
        return NoControllerError(
            said, "If the controller speaks HTTPS, begin its URL with https://."
        )
    if "WRONG_VERSION_NUMBER" in reason:
        return NoControllerError(said, "If the controller speaks HTTP, begin its URL with http://.")
    if "certificate verify failed" not in reason:
        is_url = where.startswith(("http://", "https://"))
        advice = "Check SEATRIAL_URL, and that `seatrial serve` runs there." if is_url else ""
        return NoControllerError(said, *filter(None, [advice]))
    advice = "Set SSL_CERT_FILE to a PEM file with the certificates that you trust."
    return NoControllerError(said, advice)


def _refusal(answer: httpx.Response, document: str = "") -> RefusalError | NoControllerError:
    try:
        body = answer.json()
    except ValueError:
        body = None
    # Answers to HEAD have no body; a proxy answers other requests with its own pages.
    if body is None and answer.request.method != "HEAD":
        sentence = _stranger(answer)
        if answer.status_code in _UNKNOWN:
            return NoControllerError(sentence)
        return RefusalError(answer.status_code, [sentence])
    problem = body if isinstance(body, dict) else {}
    said = str(problem.get("detail") or problem.get("title") or answer.reason_phrase)
    return RefusalError(
        answer.status_code, _lines(answer.status_code, said), _errors(problem, document)
    )


def _lines(status: int, message: str) -> list[str]:
    if status == httpx.codes.UNAUTHORIZED:
        return [
            message,
            "Set SEATRIAL_TOKEN to a token of this controller (`seatrial token create`).",
        ]
    if status == httpx.codes.FORBIDDEN:
        return [message, "A token with a wider scope is needed."]
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return [f"the controller failed ({status}): {message}", "Its log tells more."]
    return [message]


def _errors(problem: Mapping[str, object], document: str) -> list[str]:
    errors = problem.get("errors")
    if not isinstance(errors, list):
        return []
    return [_error(document, error) for error in errors if isinstance(error, dict)]


def _error(name: str, error: Mapping[str, object]) -> str:
    path = ".".join(part for part in str(error.get("pointer") or "").split("/") if part)
    sentence = ": ".join(part for part in (path, str(error.get("detail") or "")) if part)
    line, column = error.get("line"), error.get("column")
    place = f"{name}:{line}:{column or 1}" if line is not None else name
    return f"{place}: {sentence}" if place else sentence


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Return the parser of a record; it is cached, because creating it is slow."""
    return TypeAdapter(kind)


def read(kind: type[T], answer: object) -> T:
    """Parse an answer into a record; unknown keys are ignored.

    Raises UnreadableAnswerError if a value does not fit, such as an outcome of newer
    controllers.
    """
    try:
        found: T = _adapter(kind).validate_python(answer, extra="ignore")  # type: ignore[arg-type]  # a class has a hash
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UnreadableAnswerError(
            f"the controller's answer is not understood: {place}: {first['msg']}",
            "Are the controller and this command of the same version?",
        ) from None
    return found


@dataclass(frozen=True, slots=True)
class _ListedPage:
    items: tuple[dict[str, Any], ...]
    next: str | int | None = None


def key_of(given: str | None) -> str:
    """Return the given idempotency key, or a new one."""
    return given or secrets.token_hex(16)


def newest(client: Client, path: str, *, limit: int, **filters: str | int | None) -> Iterator[Json]:
    """Yield the first items of a list, page by page. Raises SeatrialError."""
    return _listed(client, path, "before", filters, limit)


def _listed(
    client: Client,
    path: str,
    cursor: str,
    filters: Mapping[str, str | int | None],
    limit: int | None = None,
) -> Iterator[Json]:
    """Yield the items of a list, page by page; all of them without a `limit`.

    `cursor` is the query parameter that takes the value ``next`` of the previous page.
    """
    following: str | int | None = None
    count = 0
    while limit is None or count < limit:
        page = _PAGE if limit is None else min(limit - count, _PAGE)
        asked = {**filters, "limit": page, cursor: following}
        found = read(_ListedPage, client.get(path, **asked))
        yield from found.items[:page]
        following = found.next
        if following is None:
            return
        count += len(found.items)


def read_items(kind: type[T], answer: Json) -> tuple[T, ...]:
    """Parse every item of a list. Raises UnreadableAnswerError."""
    found: tuple[T, ...] = read(tuple[kind, ...], answer.get("items"))  # type: ignore[valid-type]
    return found
