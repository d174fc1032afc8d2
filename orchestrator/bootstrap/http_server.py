"""The HTTP server: sockets, TLS, applications, and bounds for slow, idle or many clients."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

import h11
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.api.errors import answer_known
from orchestrator.api.security import any_credential_of
from orchestrator.application.credentials import BusyError, TooManyRequestsError, project_of
from orchestrator.cli.errors import RefusedError
from orchestrator.dashboard import urls
from orchestrator.dashboard.app import FORM_LIMIT_BYTES
from orchestrator.dashboard.pages.sign_in import project_of_request


@dataclass(slots=True)
class TlsFiles:
    """The certificate of a port, with its chain, and its private key.

    The constructor raises RefusedError for files that cannot be used.
    """

    certificate: Path
    key: Path | None
    """None if the certificate's file holds it too."""
    context: ssl.SSLContext = field(init=False)
    """Context of TLS 1.2 and newer. A renewal changes this object, so that new connections use the
    new certificate.
    """
    _seen: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Read both files."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._seen = self._stamps()
            self._load(self.context)
        except OSError as error:  # includes SSLError
            raise RefusedError(self._refusal(error)) from error

    def renew(self) -> None:
        """Load the files again if they changed; unusable files change nothing."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            self._load(
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            )  # a trial: a failed load leaves half of a pair in the context
            self._load(self.context)
        except OSError as error:
            logger.warning("%s; the earlier certificate stays in use", self._refusal(error))
            return
        self._seen = stamps
        logger.info("the certificate %s is in use from now on", self.certificate)

    def _files(self) -> tuple[Path, ...]:
        return (self.certificate, self.key) if self.key else (self.certificate,)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in map(Path.stat, self._files()))

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.certificate, self.key, password=_no_password)

    def _refusal(self, error: OSError) -> str:
        names = " and ".join(str(file) for file in self._files())
        if isinstance(error, _EncryptedKeyError):
            return f"TLS: {names}: {error}"
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            return f"TLS: {names} do not belong together: the key is another certificate's"
        if isinstance(error, ssl.SSLError):
            return f"TLS: {names} must be PEM files of a certificate and its private key ({error})"
        return f"TLS: {error.filename or names} cannot be read: {error.strerror or error}"


class _EncryptedKeyError(OSError):
    """The key has a password, and the server has no terminal to ask for it."""


def _no_password() -> str:
    raise _EncryptedKeyError(
        "the private key has a password: write it without one (openssl pkey -in KEY -out NEW) and"
        " readable by the controller's user only"
    )


logger = logging.getLogger(__name__)

_PATH_LIMIT_BYTES = 100
"""Maximum length of a socket's path; the kernel's limit is 107 on Linux, 103 elsewhere."""
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def home_socket(path: Path) -> list[socket.socket]:
    """Return the home's socket, accessible by its owner only. Raises RefusedError."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with _short_name(path) as name:
            bound.bind(name)
    except OSError as error:
        bound.close()
        raise RefusedError(
            f"{path} cannot be made: {error.strerror or error}; set SEATRIAL_HOME to another"
            " folder, with a shorter path"
        ) from error
    finally:
        os.umask(mask)
    return [bound]


def port_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host. Raises RefusedError."""
    bound: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                bound.append(socket.create_server(address[:2], family=family))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                lacking = error
        if lacking is not None and not bound:
            raise lacking
        for one in bound:
            # Connections inherit the option. Without it the end of a response waits 40 ms for the
            # client's acknowledgement of its beginning. asyncio does not set it for these sockets.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        for one in bound:
            one.close()
        raise RefusedError(_why_not(host, port, error)) from error
    return bound


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another process: --port takes another"
    is_name = isinstance(error, socket.gaierror) or error.errno is None
    reason = error.strerror if is_name else os.strerror(error.errno or 0)
    return f"port {port} of {host} cannot be listened on: {reason}; see --host and --port"


@contextlib.contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Return a path of the file that is short enough for the kernel."""
    if len(os.fsencode(path)) <= _PATH_LIMIT_BYTES or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


_API = ("/api/", "/docs/", "/openapi.json/", "/healthz/", "/readyz/", "/metrics/")


class AsgiDispatch:
    """Routes each request to the application of its path."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the application of its path."""
        await (self._pages if _is_page(scope) else self._api)(scope, receive, send)


def _is_page(scope: Scope) -> bool:
    return scope["type"] == "http" and not f"{scope['path']}/".startswith(_API)


class ProjectDispatch:
    """Routes each request to the applications of the project that its secret names.

    The name in the secret is no proof: each project's applications look for the secret in their own
    database.
    """

    def __init__(self, first: ASGIApp, further: Mapping[str, ASGIApp]) -> None:
        """Store the first project's application, and those of further projects by name."""
        self._first = first
        self._further = further

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the applications of its project."""
        if scope["type"] == "http":
            project, receive = await _project_asked(Request(scope, receive))
            await self._further.get(project, self._first)(scope, receive, send)
        else:
            await self._first(scope, receive, send)


async def _project_asked(request: Request) -> tuple[str, Receive]:
    """Return the further project of a request (empty: the first), and the receiver of its body.

    A sign-in has no session yet: a form has a token that names the project, and the two URLs of a
    sign-in at the issuer name the project themselves.
    """
    path = request.scope["path"]
    if path == urls.SIGN_IN_AT_ISSUER:
        return request.query_params.get("project", ""), request.receive
    if path == urls.SIGNED_IN_AT_ISSUER:
        return project_of_request(request), request.receive
    if (request.method, path) == ("POST", urls.SIGN_IN):
        return await _project_of_form(request)
    given = any_credential_of(request)
    return project_of(given.secret) if given else "", request.receive


async def _project_of_form(request: Request) -> tuple[str, Receive]:
    received: list[Message] = []
    body = bytearray()
    while len(body) <= FORM_LIMIT_BYTES:
        received.append(await request.receive())
        body += received[-1].get("body", b"")
        if not received[-1].get("more_body", False):
            break

    async def again() -> Message:
        return received.pop(0) if received else await request.receive()

    fields = parse_qs(bytes(body[:FORM_LIMIT_BYTES]).decode("latin-1"))
    return project_of(fields.get("token", [""])[-1].strip()), again


def refused(pages: ASGIApp, scope: Scope, error: TooManyRequestsError | BusyError) -> ASGIApp:
    """Return the application that answers a refused request: the pages, or a problem document."""
    if not _is_page(scope):
        return answer_known(scope["path"], error)
    scope.setdefault("state", {})["refused"] = error
    return pages


_LINGER_S = 1.0
"""Seconds in which a rejected client can read the response."""
_ROOM = 2
"""Factor over the limit up to which clients are answered 503; above it connections are cut."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of clients. Responses have no time limit, because event streams last for days."""

    headers_s: float
    """Maximum seconds from the connection, or the previous response, to the complete headers.

    The TLS handshake before that has the same limit.
    """
    pause_s: float
    """Maximum seconds between two parts of a body."""
    connections: int
    """Maximum connections of all clients, including unfinished TLS handshakes."""

    @property
    def of_one_client(self) -> int:
        """Return the maximum connections of one address: half of all.

        It is not lower, because many clients may share a proxy's address.
        """
        return max(self.connections // 2, 1)


class BoundedProtocol(H11Protocol):
    """A connection with limits; a subclass sets `limits`."""

    limits: ClassVar[HttpLimits]
    is_refused = False
    """Whether the client gets only the response 503."""
    _clock: asyncio.TimerHandle | None = None

    def admit(self, client: tuple[str, int] | None) -> float:
        """Count the connection; return the seconds for its TLS handshake, or 0 to cut it."""
        limits = self.limits
        self.client = client
        self.connections.add(self)
        near = [one for one in self.connections if _is_of(one, client)]
        is_cut = len(self.connections) > limits.connections * _ROOM
        if is_cut or len(near) > limits.of_one_client * _ROOM:
            self.connections.discard(self)
            return 0.0
        too_many = _served(self.connections) > limits.connections
        self.is_refused = too_many or _served(near) > limits.of_one_client
        return _LINGER_S if self.is_refused else limits.headers_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the connection, or refuse it if there are too many (with TLS already counted)."""
        is_counted = self in self.connections
        super().connection_made(transport)
        if not is_counted and not self.admit(self.client):
            transport.abort()
        elif self.is_refused:
            self._refuse()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, and restart the timer."""
        if self.is_refused:
            return
        was = self.conn.their_state
        super().data_received(data)
        if was is h11.SEND_BODY or self.conn.their_state is not was:
            self._watch()

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self._stop()
        super().connection_lost(exc)

    def _refuse(self) -> None:
        """Send 503, and close after a moment, because closing at once could lose the response."""
        self._clock = self.loop.call_later(_LINGER_S, self.transport.abort)
        said = "there are too many connections; send the request again later"
        self.transport.write(_answer(503, "Service Unavailable", "too-many-connections", said))
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()

    def _watch(self) -> None:
        """Restart the timer for the client's next input: headers, or a part of the body."""
        self._stop()
        owes = self.conn.their_state
        if owes is h11.IDLE:
            self._clock = self.loop.call_later(self.limits.headers_s, self._without_headers)
        elif owes is h11.SEND_BODY:
            self._clock = self.loop.call_later(self.limits.pause_s, self._without_body)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _without_headers(self) -> None:
        begun, _ = self.conn.trailing_data
        if begun and not self.transport.is_closing():
            said = f"the headers were not complete within {self.limits.headers_s:g} s"
            self.transport.write(_answer(408, "Request Timeout", "too-slow", said))
        self.transport.close()

    def _without_body(self) -> None:
        """Close the connection, unless the server has paused reading."""
        if self.flow.read_paused or self.conn.they_are_waiting_for_100_continue:
            self._watch()
        else:
            self.transport.close()


def _is_of(one: object, client: tuple[str, int] | None) -> bool:
    other: tuple[str, int] | None = getattr(one, "client", None)
    return client is not None and other is not None and client[0] == other[0]


def _served(connections: Iterable[object]) -> int:
    """Return the number of connections that are not refused."""
    return sum(not getattr(one, "is_refused", False) for one in connections)


def _answer(status: int, phrase: str, kind: str, detail: str) -> bytes:
    """Return a problem document for a connection without a complete request."""
    problem = {
        "type": f"urn:seatrial:problem:{kind}",
        "title": phrase,
        "status": status,
        "detail": detail,
    }
    body = json.dumps(problem).encode()
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 5\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


_NO_DESCRIPTOR_S = 1.0
"""Seconds to wait where the process has no free file descriptor for a connection."""


class HttpServer(uvicorn.Server):
    """A server of one application, without signal handlers.

    Args:
        application: The application that answers.
        limits: Limits of the clients; None for a socket that only the owner can use.
        tls: The TLS context, which needs limits; None for plain HTTP.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        limits: HttpLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        http = type("Bounded", (BoundedProtocol,), {"limits": limits}) if limits else "h11"
        config = uvicorn.Config(
            application,
            http=http,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # else a client on the loopback could choose its address
            timeout_graceful_shutdown=2,
        )
        super().__init__(config)
        self._tls = tls
        self._encrypted: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen.

        Sockets with TLS are accepted by this class, which counts clients as they connect, because
        the event loop's server reports a client only after its handshake.
        """
        if self._tls is None:
            await super().startup(sockets)
            return
        self._encrypted = list(sockets or ())
        for one in self._encrypted:
            one.setblocking(False)
            one.listen(self.config.backlog)
        await super().startup(sockets=[])

    async def main_loop(self) -> None:
        """Serve until stopped; raise an error if the server can no longer accept connections."""
        async with asyncio.TaskGroup() as group:
            accepting = [group.create_task(self._accept(one)) for one in self._encrypted]
            await super().main_loop()
            for task in accepting:
                task.cancel()
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                logger.error("no connection can be accepted: %s", error)
                await asyncio.sleep(_NO_DESCRIPTOR_S)
                continue
            protocol: BoundedProtocol = self.config.http_protocol_class(  # type: ignore[assignment]
                config=self.config,  # type: ignore[call-arg]
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )
            seconds = protocol.admit(address[:2])
            if not seconds:
                connection.close()
                continue
            task = asyncio.create_task(self._shake_hands(protocol, connection, seconds))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(
        self, protocol: BoundedProtocol, connection: socket.socket, seconds: float
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):  # the client failed, or was too slow
                await loop.connect_accepted_socket(
                    lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=seconds
                )
        finally:
            if protocol.transport is None:
                self.server_state.connections.discard(protocol)
