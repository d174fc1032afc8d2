"""The application of the dashboard's pages, and the security headers of every answer."""

from __future__ import annotations

import hashlib
import logging
import secrets
from pathlib import Path

from anyio import CapacityLimiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.application.context import Context
from orchestrator.application.credentials import BusyError, TooManyRequestsError
from orchestrator.application.describe_run import RunMissingError
from orchestrator.application.evaluate_gate import VerdictMissingError
from orchestrator.application.gate_policies import GateMissingError
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.pages import (
    audit,
    benchmark_list,
    benchmark_trend,
    cell,
    compare,
    costs,
    failure_groups,
    flaky,
    gates,
    grid,
    known_issues,
    launch,
    log,
    machines,
    products,
    release_board,
    runs,
    schedules,
    sign_in,
    slowest,
    tests,
)
from orchestrator.dashboard.pages.run import routes as run
from orchestrator.dashboard.responses import Format, Page, PageMissingError, Pages, pages_of
from orchestrator.dashboard.session import (
    ForeignFormError,
    NotAllowedError,
    SignedOutError,
    UploadRefusedError,
)
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.extras import MissingExtraError
from orchestrator.store.audit_recorder import explain, refuse
from orchestrator.store.errors import PrunedError, StoreError

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'nonce-{nonce}'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types htmx",
    )
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class PageHeaders:
    """Adds the headers, and gives each request a nonce in ``request.state.nonce``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request to the application, and add the headers to its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, careful)


logger = logging.getLogger(__name__)
STATIC = Path(__file__).resolve().parent / "static"
_REFUSALS: dict[type[Exception], tuple[int, str]] = {
    PageMissingError: (404, "There is no such page"),
    RunMissingError: (404, "There is no such run"),
    GateMissingError: (404, "There is no such gate"),
    VerdictMissingError: (404, "There is no such verdict"),
    PrunedError: (410, "This was pruned"),
    InvalidDocumentError: (422, "The document cannot be used"),
    NotAllowedError: (403, "The token may not do this"),
    ForeignFormError: (403, "The form is too old, or not of this session"),
    TooManyRequestsError: (429, "There were too many requests"),
    BusyError: (503, "The controller is busy"),
    UploadRefusedError: (413, "The upload is too large"),
    MissingExtraError: (501, "A part of Seatrial is not installed"),
    StoreError: (503, "The database cannot be reached"),
}
FORM_LIMIT_BYTES = 1024 * 1024
"""Maximum size of a form without files."""
_SAFE = frozenset({"GET", "HEAD"})
_AWAY = "The controller's log says why."
_NEXT = {
    400: "Load the page again, and send no more than a megabyte.",
    403: "Sign in with a token that may, or load the page again.",
    404: "The release board leads to everything that there is.",
    410: "The results of the run are kept; its page has them.",
    429: "Nothing was done; try again when the minute is over.",
    500: "Try again; if it comes back, the log of the controller says why.",
    501: "Install it as the message says, and start the controller again.",
    503: "Nothing was changed; try again in a moment.",
}

_PAGES = (
    sign_in,
    release_board,
    runs,
    run,
    cell,
    slowest,
    launch,
    log,
    costs,
    machines,
    audit,
    products,
    grid,
    tests,
    compare,
    benchmark_list,
    benchmark_trend,
    gates,
    failure_groups,
    flaky,
    known_issues,
    schedules,
)


def create_dashboard(context: Context) -> FastAPI:
    """Return the application.

    Args:
        context: The dependencies of operations.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    static = f"/static/{_version(STATIC)}"
    app.state.context = context
    app.state.pages = Pages(static)
    app.state.issuer_threads = CapacityLimiter(sign_in.THREADS)
    for pages in _PAGES:
        app.include_router(pages.router)
    app.mount(static, ImmutableFiles(directory=STATIC), name="static")
    for kind in _REFUSALS:
        app.add_exception_handler(kind, _on_known)
    app.add_exception_handler(SignedOutError, _on_signed_out)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_unhandled)
    app.add_middleware(GZipMiddleware, minimum_size=1_000)
    app.add_middleware(FormSize)
    app.add_middleware(Refused)
    app.add_middleware(Suffix)
    app.add_middleware(Head)
    app.add_middleware(PageHeaders)
    return app


class Refused:
    """Answers requests that an earlier layer refused with a page that shows the error.

    The earlier layer stores the error in the request's state.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request; forward any other."""
        error = scope.get("state", {}).get("refused")
        if error is None:
            await self._app(scope, receive, send)
        else:
            await (await _on_known(Request(scope, receive), error))(scope, receive, send)


class FormSize:
    """Refuses forms that are too large before they are parsed or stored.

    The launch form with its uploads has its own limit, which is checked after its viewer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request with its whole body, or answer 413."""
        if scope["type"] != "http" or scope["method"] in _SAFE or scope["path"] == urls.LAUNCH:
            await self._app(scope, receive, send)
            return
        request, body = Request(scope, receive), bytearray()
        announced = request.headers.get("content-length", "")
        is_small = not announced.isdecimal() or int(announced[:19]) <= FORM_LIMIT_BYTES
        if is_small:
            async for part in request.stream():
                body += part
                is_small = len(body) <= FORM_LIMIT_BYTES
                if not is_small:
                    break
        if not is_small:
            said = f"at most {FORM_LIMIT_BYTES} bytes are taken here"
            await _refuse(request, 413, "The form is too large", said)(scope, receive, send)
            return
        unread: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def read() -> Message:
            return unread.pop() if unread else await receive()

        await self._app(scope, read, send)


class Suffix:
    """Removes `.json`, `.csv` or `.md` from a page's path and stores it as the wanted format.

    Paths of the sign-in are unchanged, because the audit log identifies them by path.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request with the shorter path and the wanted format in its state."""
        if scope["type"] == "http" and not scope["path"].startswith(("/static/", urls.SIGN_IN)):
            # A name with such an ending is encoded with %2E: see urls.as_page.
            suffix = scope.get("raw_path", b"").decode("latin-1").rpartition(".")[2]
            path = scope["path"].removesuffix(f".{suffix}")
            if suffix in urls.SUFFIXES and path:
                shorter = urls.BOARD if path == "/index" else path
                state = {**scope.get("state", {}), "format": Format(suffix)}
                scope = {**scope, "path": shorter, "raw_path": shorter.encode(), "state": state}
        await self._app(scope, receive, send)


class Head:
    """Answers a HEAD request like a GET request, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a HEAD request as GET, and drop the response's body.

        A HEAD request to the sign-in at the issuer is forwarded as HEAD and gets 405, because the
        sign-in changes state.
        """
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if not is_head or scope["path"].startswith(urls.SIGN_IN_AT_ISSUER):
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            is_body = message["type"] == "http.response.body"
            await send({**message, "body": b""} if is_body else message)

        await self._app({**scope, "method": "GET"}, receive, without_body)


class ImmutableFiles(StaticFiles):
    """Static files that browsers may cache forever: their URL changes with their content."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with the static file and a header that lets browsers cache it forever."""

        async def kept(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (200, 304):
                told = (b"cache-control", b"public, max-age=31536000, immutable")
                message["headers"] = [*message["headers"], told]
            await send(message)

        await super().__call__(scope, receive, kept)


def _version(folder: Path) -> str:
    """Return a digest of the static files, which changes with any of them."""
    seen = hashlib.sha256()
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        seen.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return seen.hexdigest()[:16]


def _refuse(request: Request, status: int, title: str, detail: str) -> Response:
    explain(detail or title)
    if getattr(request.state, "format", Format.HTML) is not Format.HTML:
        return PlainTextResponse(f"{title}: {detail}\n", status)
    words = {
        "status": status,
        "title": title,
        "detail": detail,
        "next": _NEXT.get(status, "Correct the request as the message says, and try again."),
        "nonce": request.state.nonce,
        "page": Page(template="error.html.j2", title=title),
        "viewer": getattr(request.state, "viewer", None),
    }
    return HTMLResponse(pages_of(request).show("error.html.j2", words), status)


async def _on_known(request: Request, error: Exception) -> Response:
    status, title = next(_REFUSALS[kind] for kind in type(error).__mro__ if kind in _REFUSALS)
    if not isinstance(error, StoreError):
        return _refuse(request, status, title, str(error))
    logger.error("%s: %s", request.url.path, error)  # the text names the database and the query
    return _refuse(request, status, title, _AWAY)


async def _on_signed_out(request: Request, _error: Exception) -> Response:
    refuse("nobody is signed in")
    if getattr(request.state, "format", Format.HTML) is not Format.HTML:
        said = "sign in, or send `Authorization: Bearer seatrial_...`\n"
        return PlainTextResponse(said, 401, {"WWW-Authenticate": 'Bearer realm="seatrial"'})
    asked = {name: text for name, text in request.query_params.items() if name != "part"}
    here = urls.with_query(request.url.path, **asked)
    after = here if request.method == "GET" else urls.BOARD
    address = urls.with_query(urls.SIGN_IN, next=after)
    if "hx-request" in request.headers:
        # A part of a page sent the request: the whole page must go to the sign-in.
        return Response(status_code=401, headers={"HX-Redirect": address})
    return RedirectResponse(address, 303)


async def _on_invalid(request: Request, error: Exception) -> Response:
    found = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    where = ".".join(str(part) for part in found.get("loc", ())[1:])
    limits = {**found.get("ctx", {}), "value": visible(cut(str(found.get("input")), 80))}
    said = _INVALID_VALUES.get(str(found.get("type")), "is not what it may be: {value}").format(
        **limits
    )
    return _refuse(request, 422, "This cannot be understood", f"{where} {said}".strip())


_INVALID_VALUES = {
    "missing": "is missing",
    "int_parsing": "must be a whole number, and is {value}",
    "int_parsing_size": "must be a smaller number",
    "float_parsing": "must be a number, and is {value}",
    "bool_parsing": "must be true or false, and is {value}",
    "greater_than_equal": "must be at least {ge}, and is {value}",
    "less_than_equal": "must be at most {le}, and is {value}",
    "literal_error": "must be {expected}, and is {value}",
    "enum": "must be {expected}, and is {value}",
    "string_too_long": "has more than {max_length} characters",
}
"""Sentences of refused parameters, by the validation's types."""


async def _on_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    title = "There is no such page" if status == 404 else "This is not possible here"
    return _refuse(request, status, title, request.url.path)


async def _on_unhandled(request: Request, _error: Exception) -> Response:
    """Answer 500. The error's text may hold secrets: it is logged, never sent."""
    detail = "Seatrial met something that it does not know; its log has the details."
    return _refuse(request, 500, "Something went wrong", detail)
