"""The launch page and its form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import anyio
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from orchestrator.application.launch_run import (
    KeyInFlightError,
    KeyReusedError,
    LaunchOrder,
    PayloadMissingError,
    launch_run,
)
from orchestrator.application.plan_run import Plan, plan_run
from orchestrator.assets import asset_dir
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.launch.form import MOST_CHARACTERS, SOURCES, Form, order_of
from orchestrator.dashboard.pages.launch.plan import cell_table, headroom_table, total, warnings
from orchestrator.dashboard.pages.run.actions import form_key
from orchestrator.dashboard.responses import Asked, AskedDep, Page, PageMissingError
from orchestrator.dashboard.session import NotAllowedError, Viewer, needs
from orchestrator.domain.cell import Run
from orchestrator.domain.matrix import Matrix
from orchestrator.domain.person import Scope
from orchestrator.domain.problems import InvalidDocumentError, Problem

_FIELDS = (
    *("subject", "version", "source", "package", "wheel", "url", "rev"),
    *("payload", "hold_minutes", "reruns", "reuse_hours"),
)
_LONGEST_FIELD = 2_000
_TRIES = 40
_PAUSE_S = 0.25
_CONTEXT_LINES = 1

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to mend, with the line of the text that it is about."""

    where: str
    message: str
    line: int | None = None
    column: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of the form."""

    plan: Plan | None = None
    matrix: Matrix | None = None
    mistakes: Sequence[Mistake] = ()
    refused: str = ""
    changed: bool = False
    """It was started, but is not what was planned."""


@router.get(urls.LAUNCH)
def show_launch(asked: AskedDep, matrix: str = "") -> Response:
    """The form, with the text of a ready matrix."""
    if not asked.viewer.may(Scope.RUN):
        message = f"launching needs the scope run; the token {asked.viewer.name!r} may only read"
        raise NotAllowedError(message)
    ready = _ready()
    if matrix and matrix not in ready:
        names = ", ".join(ready) or "none"
        raise PageMissingError(f"there is no ready matrix {matrix!r}; there is: {names}")
    name = matrix or next(iter(ready), "")
    form = Form(name=f"{name}.yaml" if name else "matrix", text=ready.get(name, ""))
    return _answer(asked, form, _read(asked, form))


@router.post(urls.LAUNCH)
async def launch(
    asked: AskedDep, viewer: Annotated[Viewer, needs(Scope.RUN)], request: Request
) -> Response:
    """Plan, or start what was planned; the same form twice starts once."""
    sent = await request.form()
    try:
        form = _form(sent, await _uploaded(sent))
    finally:
        await sent.close()
    if sent.get("action") != "start":
        found = await run_in_threadpool(_planned, asked, form)
        return await run_in_threadpool(_answer, asked, form, found)
    if sent.get("planned") != form.fingerprint:
        found = await run_in_threadpool(_planned, asked, form, changed=True)
        return await run_in_threadpool(_answer, asked, form, found, status=409)
    key = str(sent.get("key") or asked.context.new_id())[:100]
    started = await _started(asked, form, key)
    if isinstance(started, Run):
        return asked.go(urls.run_url(started.id))
    return await run_in_threadpool(_answer, asked, form, started)


async def _started(asked: Asked, form: Form, key: str) -> Run | Found:
    """The run, or what is wrong.

    Of two clicks, a browser shows the answer to the second one: it waits for the first.
    """
    for _ in range(_TRIES):
        try:
            return await run_in_threadpool(_start, asked, form, key)
        except KeyInFlightError:
            await anyio.sleep(_PAUSE_S)
    return Found(refused="It is being launched; /runs shows it as soon as it is there.")


def _start(asked: Asked, form: Form, key: str) -> Run | Found:
    try:
        order, _ = order_of(asked.context, form)
        claim = form_key(key, "launch", form.fingerprint)
        return launch_run(asked.context, order, claim).run
    except InvalidDocumentError as error:
        return Found(mistakes=_mistakes(asked, error, form))
    except (PayloadMissingError, KeyReusedError) as error:
        return Found(refused=str(error))


def _planned(asked: Asked, form: Form, *, changed: bool = False) -> Found:
    if not form.text.strip():
        return Found(refused="Write a matrix, choose a ready one, or send a file.")
    matrix: Matrix | None = None
    try:
        matrix = asked.context.documents.read_matrix(form.text, form.name)
        order, matrix = order_of(asked.context, form)
        return Found(_plan(asked, order), matrix, changed=changed)
    except InvalidDocumentError as error:
        return Found(matrix=matrix, mistakes=_mistakes(asked, error, form))
    except PayloadMissingError as error:
        return Found(matrix=matrix, refused=str(error))


def _plan(asked: Asked, order: LaunchOrder) -> Plan:
    return plan_run(asked.context, order)


def _read(asked: Asked, form: Form) -> Found:
    """The platforms of a ready matrix; nobody is asked for prices yet."""
    try:
        return Found(matrix=asked.context.documents.read_matrix(form.text, form.name))
    except InvalidDocumentError:
        return Found()


def _answer(asked: Asked, form: Form, found: Found, *, status: int = 0) -> Response:
    plan = found.plan
    if found.matrix is not None:
        form = form.about(found.matrix)
    facts = {
        "form": form,
        "found": found,
        "ready": list(_ready()),
        "sources": SOURCES,
        "platforms": [platform.id for platform in found.matrix.platforms] if found.matrix else [],
        "stated": found.matrix.subject if found.matrix else None,
        "plan": cell_table(plan) if plan else None,
        "headroom": headroom_table(plan) if plan else None,
        "total": total(plan) if plan else "",
        "warnings": warnings(plan) if plan else [],
        "key": asked.context.new_id(),
    }
    is_wrong = bool(found.mistakes or found.refused)
    page = Page(template="launch.html.j2", title="Launch", facts=facts, section=urls.LAUNCH)
    return asked.answer(page, status=status or (422 if is_wrong else 200))


def _ready() -> dict[str, str]:
    """The matrices that come with Seatrial, by name."""
    folder = asset_dir("matrices")
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yaml"))}


async def _uploaded(sent: FormData) -> tuple[str, str]:
    """The name and the text of a file that was sent; empty where none was."""
    file = sent.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        return "", ""
    data = await file.read(MOST_CHARACTERS)
    return file.filename[:200], data.decode("utf-8", "replace")


def _form(sent: FormData, uploaded: tuple[str, str]) -> Form:
    def text(name: str, longest: int = _LONGEST_FIELD) -> str:
        value = sent.get(name, "")
        return value[:longest] if isinstance(value, str) else ""

    def several(name: str) -> tuple[str, ...]:
        return tuple(value[:200] for value in sent.getlist(name) if isinstance(value, str))

    file, content = uploaded
    written = text("text", MOST_CHARACTERS).replace("\r\n", "\n")
    return Form(
        name=file or text("name", 200) or "matrix",
        text=content or written,
        platforms=() if content else several("platform"),
        known=() if content else several("known"),
        diagnose=bool(text("diagnose")),
        **{name: text(name).strip() for name in _FIELDS},
    )


def _mistakes(asked: Asked, error: InvalidDocumentError, form: Form) -> list[Mistake]:
    """With the lines of the text, also where the form has changed what is in it."""
    problems = error.problems
    if error.name == form.name and all(problem.line is None for problem in problems):
        try:
            asked.context.documents.refuse_matrix(form.text, form.name, problems)
        except InvalidDocumentError as located:
            problems = located.problems
    lines = form.text.split("\n")
    return [_mistake(problem, lines) for problem in problems]


def _mistake(problem: Problem, lines: Sequence[str]) -> Mistake:
    where = ".".join(str(part) for part in problem.path)
    if problem.line is None or not 0 < problem.line <= len(lines):
        return Mistake(where, problem.message)
    return Mistake(where, problem.message, problem.line, problem.column, _excerpt(problem, lines))


def _excerpt(problem: Problem, lines: Sequence[str]) -> str:
    """The line with the one before it, and a mark below the place."""
    at = problem.line or 1
    first = max(1, at - _CONTEXT_LINES)
    shown = [f"{number:>4}  {lines[number - 1][:200]}" for number in range(first, at + 1)]
    if problem.column is not None and problem.column <= 200:
        shown.append(" " * (5 + problem.column) + "^")
    return "\n".join(shown)
