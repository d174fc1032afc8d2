"""Requests and responses of pages: finds the named run or product, renders each format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from orchestrator.application.context import Context, NotedContext
from orchestrator.assets import asset_dir
from orchestrator.dashboard import urls
from orchestrator.dashboard.forms import Form
from orchestrator.dashboard.labels import cut, prose, spoken, visible
from orchestrator.dashboard.session import Viewer, ViewerDep
from orchestrator.dashboard.table import OutcomeMark, Plain, Row, Table, Text
from orchestrator.domain.cell import Cell, Run
from orchestrator.domain.units import duration, elapsed
from orchestrator.domain.vocabulary import term

_UNSAFE_IN_SHEETS = ("=", "+", "-", "@", "\t", "\r")


class Format(StrEnum):
    """The format of a page."""

    HTML = "html"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "md"


class PageMissingError(LookupError):
    """The page does not exist; the text names the existing ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of a page."""

    template: str
    title: str
    tables: Sequence[Table] = ()
    """All tables of the page; `.csv` has the first one unless `?table=` names another."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Further values for the template, by name."""
    data: Mapping[str, object] = field(default_factory=dict)
    """Further values of the `.json` format."""
    section: str = ""
    """URL of the navigation entry that the page belongs to."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page by a signed-in viewer."""

    request: Request
    context: Context
    viewer: Viewer
    now: datetime

    @property
    def wanted(self) -> Format:
        """Return the requested format."""
        return Format(getattr(self.request.state, "format", Format.HTML))

    @property
    def query(self) -> Mapping[str, str]:
        """The query of the address; of a repeated name, the last value."""
        return self.request.query_params

    def here(self, **changed: str) -> str:
        """Return this page's URL with changed query values; an empty value removes its name."""
        asked = {**self.query, **changed}
        asked.pop("part", None)
        return urls.with_query(self.path, **asked)

    @property
    def path(self) -> str:
        """This page's address without its query and its format suffix."""
        return urls.as_page(quote(self.request.scope["path"]))

    def part_url(self, part: str) -> str:
        """Return the URL of one block of this page, with the present query."""
        return urls.with_query(self.path, **{**self.query, "part": part})

    def format_url(self, suffix: str, table: str) -> str:
        """Return this page's URL in another format, for one table if `table` names one."""
        asked = {**self.query, "table": table}
        asked.pop("part", None)
        path = "/index" if self.path == urls.BOARD else self.path
        return urls.with_query(f"{path}.{suffix}", **asked)

    def answer(self, page: Page, *, status: int = 200) -> Response:
        """Return the page in the requested format."""
        match self.wanted:
            case Format.JSON:
                return _json(page)
            case Format.CSV:
                return _csv(_chosen(page, self.query.get("table", ""))[0])
            case Format.MARKDOWN:
                tables = _chosen(page, self.query.get("table", ""))
                tables = [one for one in tables if one.rows] or tables[:1]
                return PlainTextResponse(
                    "\n".join(map(markdown, tables)), media_type="text/markdown"
                )
            case _:
                return self._html(page, status)

    def go(self, address: str) -> Response:
        """Redirect to another page after an action."""
        return RedirectResponse(address, 303)

    def _html(self, page: Page, status: int) -> Response:
        words = {
            "page": page,
            "asked": self,
            "viewer": self.viewer,
            "nonce": self.request.state.nonce,
            **page.facts,
        }
        part = self.query.get("part", "")
        return HTMLResponse(pages_of(self.request).show(page.template, words, part), status)


class Pages:
    """The templates of the pages."""

    def __init__(self, static: str) -> None:
        """`static` is the URL prefix of the static files."""
        self._environment = Environment(
            loader=FileSystemLoader(asset_dir("templates") / "dashboard"),
            undefined=StrictUndefined,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"visible": visible, "cut": cut, "term": term}
        self._environment.filters |= {"markdown": markdown, "spoken": spoken, "prose": prose}
        self._environment.filters |= {"elapsed": elapsed, "duration": duration}
        self._environment.globals |= {"static": static, "urls": urls, "once": self._once}
        self._marks: dict[OutcomeMark, Markup] = {}

    def show(self, template: str, words: Mapping[str, object], part: str = "") -> str:
        """Render a page, or one block of it."""
        found = self._environment.get_template(template)
        if not part:
            return found.render(**words)
        block = found.blocks.get(f"part_{part}")
        if block is None:
            raise PageMissingError(f"this page has no part {part!r}")
        return "".join(block(found.new_context(dict(words))))

    def _once(self, render: Callable[[OutcomeMark], Markup], mark: OutcomeMark) -> Markup:
        """Render a mark without a link once: the same few dozen marks are on every page."""
        known = self._marks.get(mark)
        if known is None:
            known = self._marks[mark] = render(mark)
        return known


def pages_of(request: Request) -> Pages:
    """Return the application's templates."""
    return cast(Pages, request.app.state.pages)


async def _page_request_of(request: Request, viewer: ViewerDep) -> PageRequest:
    context = NotedContext.from_context(request.app.state.context)
    return PageRequest(request, context, viewer, context.clock.now())


PageRequestDep = Annotated[PageRequest, Depends(_page_request_of)]


def cursor_of(request: PageRequest, form: re.Pattern[str]) -> str | None:
    """Return the cursor in the URL's `before`; None for the beginning of the list.

    Raises PageMissingError if the cursor does not match `form`.
    """
    before = request.query.get("before", "")
    if before and not form.fullmatch(before):
        raise PageMissingError(
            f"before={before[:100]!r} is no place in this list: without it, the list begins at its"
            " newest entry"
        )
    return before or None


def _chosen(page: Page, table: str) -> Sequence[Table]:
    found = [one for one in page.tables if table in ("", one.id)]
    if not found:
        names = ", ".join(one.id for one in page.tables) or "none"
        raise PageMissingError(f"this page has no table {table!r}; it has {names}")
    return found


def _json(page: Page) -> Response:
    tables = {table.id: _document(table) for table in page.tables}
    body = {"title": page.title, **page.data, "tables": tables}
    return Response(json.dumps(body, default=str, allow_nan=False), media_type="application/json")


def _document(table: Table) -> Mapping[str, object]:
    names = [column.id for column in table.columns]
    rows = [
        _more(row) | dict(zip(names, [cell.plain() for cell in row.cells], strict=True))
        for row in table.rows
    ]
    return {"rows": rows, "next": table.next or None, "total": table.total}


def _more(row: Row) -> dict[str, Plain]:
    """Return the additional columns of a row, such as the job of a test."""
    texts = (cell for cell in row.cells if isinstance(cell, Text))
    return {name: value for cell in texts for name, value in cell.more.items()}


def _csv(table: Table) -> Response:
    out = io.StringIO()
    writer = csv.writer(out)
    columns = [column.id for column in table.columns]
    more = [_more(row) for row in table.rows]
    columns += [
        name for name in dict.fromkeys(n for one in more for n in one) if name not in columns
    ]
    beyond = columns[len(table.columns) :]
    rows = [
        [*(cell.plain() for cell in row.cells), *(one.get(name) for name in beyond)]
        for row, one in zip(table.rows, more, strict=True)
    ]
    parts = [_parts(values) for values in zip(*rows, strict=True)] or [[""]] * len(columns)
    names = zip(columns, parts, strict=True)
    writer.writerow(
        _value(f"{name}_{part}" if part else name) for name, some in names for part in some
    )
    for row in rows:
        pairs = zip(row, parts, strict=True)
        writer.writerow(_value(_part(told, part)) for told, some in pairs for part in some)
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8")


def _parts(values: Iterable[Plain]) -> list[str]:
    """Return the names of the CSV columns of a table column, one for each key of its mappings.

    A column without mappings is one CSV column with an empty name.
    """
    named = dict.fromkeys(name for told in values if isinstance(told, Mapping) for name in told)
    return list(named) or [""]


def _part(value: Plain, part: str) -> Plain:
    if not part:
        return value
    return value.get(part) if isinstance(value, Mapping) else None


def _value(value: Plain) -> str | float:
    """Return a value for CSV: a number, or one line of text; empty for None.

    A text that a spreadsheet would read as a formula gets an apostrophe in front.
    """
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        value = json.dumps(value, default=str)
    elif not isinstance(value, str):
        value = "; ".join(str(_value(one)) for one in value)
    text = visible(cut(value)).replace("\n", " ")
    return f"'{text}" if text.startswith(_UNSAFE_IN_SHEETS) else text


def _texts(row: Row) -> list[str]:
    return [cell.text() for cell in row.cells]


def markdown(table: Table) -> str:
    """Return the table in GitHub's Markdown; untrusted text is escaped.

    A table without rows is replaced by its text for that case.
    """
    if not table.rows:
        return f"**{_quoted(table.caption)}**\n\n{_quoted(table.empty)}\n"
    titles = [_quoted(column.title) for column in table.columns]
    rules = ["---:" if column.is_number else "---" for column in table.columns]
    lines = [titles, rules, *([_quoted(text) for text in _texts(row)] for row in table.rows)]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"**{_quoted(table.caption)}**\n\n{body}\n"


def _quoted(text: str) -> str:
    for sign in "\\`*_[]<>|#~&":
        text = text.replace(sign, "&amp;" if sign == "&" else f"\\{sign}")
    return text.replace("@", "@\u2060") if "@" in text else text


_RUN = re.compile(r"[0-9A-Za-z-]{1,64}")


def run_of(request: PageRequest, name: str) -> Run:
    """Return the run of an id, a prefix of one, or ``latest``. Raises PageMissingError."""
    runs = request.context.stores.runs
    found = runs.get(name) if _RUN.fullmatch(name) else None
    if found is not None:
        return found
    matches = runs.find(name) if _RUN.fullmatch(name) else ()
    if len(matches) > 1:
        raise PageMissingError(
            f"{name!r} is the beginning of {', '.join(matches)}: write more of it"
        )
    found = runs.get(matches[0]) if matches else None
    if found is None:
        raise PageMissingError(f"there is no run {name!r}; /runs lists them")
    return found


def cell_of(request: PageRequest, run: Run, name: str) -> Cell:
    """Return a run's cell by its name. Raises PageMissingError."""
    cells = request.context.stores.cells.of_run(run.id)
    found = next((cell for cell in cells if cell.name == name), None)
    if found is None:
        names = ", ".join(cell.name for cell in cells)
        raise PageMissingError(f"run {run.id} has no cell {name!r}; it has {names}")
    return found


def products(request: PageRequest) -> Sequence[str]:
    """Return every product that has runs; the one of the newest run first."""
    return request.context.stores.releases.products()


def chosen_product(request: PageRequest) -> str:
    """Return the product in the address, or else the newest run's; empty without any run.

    Raises PageMissingError for a product without runs.
    """
    return of_products(request, products(request))


def of_products(request: PageRequest, known: Sequence[str]) -> str:
    """Return the product in the address, else the first of `known`. Raises PageMissingError."""
    named = request.query.get("product", "")
    if named and named not in known:
        some = ", ".join(known[:20]) or "none yet"
        raise PageMissingError(f"no run of a product {named!r} is stored; there is: {some}")
    return named or (known[0] if known else "")


def of_product(product: str) -> str:
    """Return `` of NAME``; empty without a product."""
    return f" of {product}" if product else ""


def product_of(request: PageRequest, form: Form, known: Sequence[str]) -> str:
    """Return the product of a rejected form, or of the address."""
    written = form.value("product")
    return written if form.is_refused and written in known else of_products(request, known)
