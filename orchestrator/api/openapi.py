"""The OpenAPI description with problem documents, and its page.

The controller serves every file that the page loads; ``vendor.json`` has their hashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from orchestrator.api.errors import MEDIA_TYPE, ProblemResponse

STATIC = Path(__file__).resolve().parent / "static"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_ABOUT = """\
Launch validation runs, watch them, and read their evidence.

Money is decimal text in US dollars, times are RFC 3339 in UTC, sizes are bytes and durations
seconds; the unit stands in the name. Whatever goes wrong is answered with a problem document
(RFC 9457). A path takes a run's id, an unambiguous beginning of it, or `latest`.

A read that is answered from the database alone has an `ETag`. Sent back as `If-None-Match`, with
the same credential, it is answered 304 while nothing changed, for ten seconds at most, since an
answer may tell ages and costs; without `If-None-Match` it is the same answer once more. What a job
reports while it runs may be missing from an answer for two seconds, unless the request has
`Cache-Control: no-cache`. The `ETag` of one schedule or gate, sent as `If-Match`, lets a
change of it (`PUT`, `DELETE`, `pause`, `resume`) go through only if nobody has changed it since:
otherwise it is answered 412, and nothing is changed. A weak `ETag` (`W/`) matches nothing there; a
`PUT` of what is stored already changes nothing, and is not refused.

A list comes in pages of at most `limit` items. `next` of a page, sent as `after` (or as `before`,
where the newest come first), asks for the page behind it; it is null on the last one. What is added
or removed meanwhile neither repeats nor hides another item. The few lists without pages are short
by nature, or the first items of an order.

Too many requests of one credential, or refused credentials of one address, are answered 429 with
`Retry-After` in seconds, and nothing is done; `RateLimit` says what is left of the minute. A read
that would wait behind 96 others is answered 503 with `Retry-After: 1`.
"""
_PROBLEM = "#/components/schemas/ProblemResponse"
_METHODS = frozenset({"get", "put", "post", "delete", "head"})

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def show_docs() -> Response:
    """Return the HTML page of the API description."""
    headers = {"Content-Security-Policy": POLICY}
    return FileResponse(STATIC / "docs.html", media_type="text/html", headers=headers)


# Not a closure: FastAPI keeps every endpoint for good, and with it everything that it refers to.
@router.get("/openapi.json")
async def openapi_json(request: Request) -> Response:
    """Return the OpenAPI description as JSON."""
    return JSONResponse(request.app.openapi())


def install(app: FastAPI) -> None:
    """Add the routes of the description and its page to the application."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it
    app.include_router(router)
    app.mount("/docs/static", StaticFiles(directory=STATIC), name="static")


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description, with problem documents as responses of every operation."""
    document = get_openapi(
        title="Seatrial", version=app.version, description=_ABOUT, routes=app.routes
    )
    schemas = document["components"]["schemas"]
    for generated in ("HTTPValidationError", "ValidationError"):
        schemas.pop(generated, None)
    problem = ProblemResponse.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {})
    schemas["ProblemResponse"] = problem
    for path in document["paths"].values():
        for method, operation in path.items():
            if method in _METHODS:
                _add_problems(operation["responses"])
    return document


def _add_problems(responses: dict[str, Any]) -> None:
    responses.pop("422", None)
    responses["default"] = {
        "description": "A problem document",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _PROBLEM}}},
    }
