"""The pages over a real SQLite database, signed in; the REST API stands beside them.

def test_a_page(pages):
    run = pages.api.launch()                    # also .begin, .finish, .clock, .database
    shown = pages.page("/runs")                 # .rows("runs"), .one("h1").text, .all("a")
    pages.json("/runs"); pages.csv("/runs"); pages.markdown("/runs"); pages.part("/runs", "x")
    pages.post("/runs/x/cancel")                # with the CSRF field; redirects not followed
    with pages.counted() as statements: pages.page("/runs")
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from sqlalchemy import event
from starlette.testclient import TestClient

from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.context import Context
from orchestrator.application.tokens import Credential, create_token, sign_in_with_token
from orchestrator.bootstrap.http_server import AsgiDispatch
from orchestrator.dashboard.app import create_dashboard
from orchestrator.dashboard.responses import Pages
from orchestrator.dashboard.session import Viewer
from orchestrator.domain.caller_identity import Caller, Scope
from orchestrator.store.stores import Stores
from tests.integration.api_context import Desk
from tests.integration.dashboard.shown import Element, read_page

HOST = "trials.example"
_NO_QUESTIONS = ("BEGIN", "PRAGMA", "SAVEPOINT", "RELEASE")


@dataclass
class PageDesk:
    """What a browser that is signed in sees, and everything behind it."""

    api: Desk
    client: TestClient
    viewer: Viewer
    token: str = ""
    """The secret of the viewer's token."""

    @property
    def stores(self) -> Stores:
        """The stores behind the pages."""
        return self.api.database.stores

    def get(self, path: str, *, status: int = 200, **headers: str) -> Any:
        """An answer as it came."""
        answer = self.client.get(path, headers=headers, follow_redirects=False)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text[:2000]}"
        return answer

    def page(self, path: str, *, status: int = 200) -> Element:
        """A page."""
        answer = self.get(path, status=status)
        assert answer.headers["content-type"].startswith("text/html")
        return read_page(answer.text)

    def part(self, path: str, name: str) -> Element:
        """One block of a page."""
        return self.page(f"{path}{'&' if '?' in path else '?'}part={name}")

    def json(self, path: str, *, status: int = 200) -> Any:
        """A page's JSON: `path` may have a query."""
        return self.get(_as(path, "json"), status=status).json()

    def rows(self, path: str, table: str) -> list[dict[str, Any]]:
        """The rows of one table of a page's JSON."""
        found: list[dict[str, Any]] = self.json(path)["tables"][table]["rows"]
        return found

    def csv(self, path: str) -> list[list[str]]:
        """A page's CSV."""
        return list(csv.reader(io.StringIO(self.get(_as(path, "csv")).text)))

    def markdown(self, path: str) -> str:
        """A page's Markdown."""
        text: str = self.get(_as(path, "md")).text
        return text

    def post(self, path: str, *, status: int = 303, csrf: str | None = None, **fields: Any) -> Any:
        """Send a form, with what makes it ours."""
        values = {"csrf": self.viewer.csrf() if csrf is None else csrf, **fields}
        headers = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
        answer = self.client.post(path, data=values, headers=headers, follow_redirects=False)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text[:2000]}"
        return answer

    def as_viewer(self, scope: str | None) -> PageDesk:
        """The same pages for a token of this scope, or for nobody who is signed in."""
        return signed_in(self.api, scope)

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[str]]:
        """The SQL statements of what happens inside, in their order."""
        seen: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            if not statement.startswith(_NO_QUESTIONS):
                seen.append(statement)

        engine = self.api.database.sessions.engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            yield seen
        finally:
            event.remove(engine, "before_cursor_execute", note)


def dashboard(context: Context) -> FastAPI:
    """The pages' application; what one has compiled of the templates, the next one uses."""
    app = create_dashboard(context)
    app.state.pages = _COMPILED.setdefault("pages", app.state.pages)
    return app


_COMPILED: dict[str, Pages] = {}


def signed_in(api: Desk, scope: str | None) -> PageDesk:
    """The pages for a new token of this scope, or for nobody."""
    client = api.speak(AsgiDispatch(api.guarded, dashboard(api.context)), base=f"http://{HOST}")
    if scope is None:
        return PageDesk(api, client, Viewer(Caller("", "nobody", Scope.READ), Credential("")))
    token, secret = create_token(api.context, f"a {scope}", Scope(scope), days=1)
    begun = sign_in_with_token(api.context, secret)
    assert begun is not None
    session = Credential(begun.secret, is_session=True)
    client.cookies.set(cookie_of(HOST), session.secret)
    caller = Caller(token.id, token.name, token.scope)
    return PageDesk(api, client, Viewer(caller, session), secret)


def _as(path: str, suffix: str) -> str:
    path, mark, query = path.partition("?")
    return f"{'/index' if path == '/' else path}.{suffix}{mark}{query}"
