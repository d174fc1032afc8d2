"""The launch page: a form, the plan of the launch, and its start."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import anyio
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from orchestrator.application.context import Context
from orchestrator.application.launch_run import (
    BUILTIN,
    KeyInFlightError,
    KeyReusedError,
    LaunchOrder,
    PayloadMissingError,
    check_order,
    find_payload,
    launch_run,
)
from orchestrator.application.plan_run import plan_run
from orchestrator.application.ports.documents import Source
from orchestrator.assets import asset_dir
from orchestrator.dashboard import urls
from orchestrator.dashboard.forms import about_payload, store_uploads
from orchestrator.dashboard.pages.run.routes import form_key
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    run_of,
)
from orchestrator.dashboard.session import NotAllowedError, Viewer, needs
from orchestrator.dashboard.table import (
    Badge,
    CellList,
    Column,
    Number,
    Row,
    Table,
    TableCell,
    Text,
    Usd,
)
from orchestrator.domain.caller_identity import Scope, missing_scope
from orchestrator.domain.cell import Run
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.launch_plan import (
    Plan,
    PlannedCell,
    free_of,
    hourly,
    limit_warning,
    shipments_in_words,
    totals,
)
from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import Matrix
from orchestrator.domain.quota import Headroom, QuotaStatus
from orchestrator.domain.retests import RetestOptions
from orchestrator.domain.units import plural

SOURCES = {
    "": "as the matrix says",
    "payload": "the payload itself",
    "package": "a package version",
    "wheel": "an uploaded wheel",
    "git": "a git revision, as an uploaded wheel",
}
MOST_CHARACTERS = 500_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")
_MOST_RERUNS = 20
_MOST_HOLD = 1440
_MOST_HOURS = 8760


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchForm:
    """The submitted form; values are kept unchanged."""

    name: str = "matrix"
    text: str = ""
    subject: str = ""
    version: str = ""
    source: str = ""
    package: str = ""
    wheel: str = ""
    url: str = ""
    rev: str = ""
    platforms: Sequence[str] = ()
    """Ids of the selected platforms."""
    known: Sequence[str] = ()
    """Ids of the platforms that the form offered."""
    payload: str = ""
    baseline: str = ""
    hold_minutes: str = ""
    reruns: str = ""
    diagnose: bool = False
    reuse_hours: str = ""

    @property
    def fingerprint(self) -> str:
        """Return the digest of all values, so that only the planned launch is started."""
        canonical = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def about(self, matrix: Matrix) -> LaunchForm:
        """Return the form with every platform of the matrix."""
        names = tuple(platform.id for platform in matrix.platforms)
        chosen = tuple(name for name in names if self.is_chosen(name))
        return replace(self, platforms=chosen, known=names)

    def is_chosen(self, platform: str) -> bool:
        """Return whether a platform is selected; True for one that the form did not offer."""
        return platform in self.platforms or platform not in self.known


def order_of(context: Context, form: LaunchForm) -> tuple[LaunchOrder, Matrix]:
    """Return the launch order and its matrix.

    Raises InvalidDocumentError or PayloadMissingError.
    """
    matrix = context.documents.read_matrix(form.text, form.name)
    faults = list(_faults(form, matrix))
    if faults:
        raise InvalidDocumentError("the form", faults)
    order = LaunchOrder(
        matrix=_source(context, form, matrix),
        name=form.name,
        payload=form.payload or BUILTIN,
        subject_digest=form.wheel or None,
        baseline_digest=form.baseline or None,
        hold_minutes=_number(form.hold_minutes) or 0.0,
        retests=_retests(form),
        reuse_max_age_s=_seconds(form.reuse_hours),
    )
    return replace(order, only=_only(context, order, form)), matrix


def _faults(form: LaunchForm, matrix: Matrix) -> list[Problem]:
    found = []
    if form.source and form.source not in SOURCES:
        found.append(Problem(("source",), f"{form.source!r} is none of {', '.join(SOURCES)}"))
    for name in ("payload", "wheel", "baseline"):
        value = getattr(form, name)
        if value and not _DIGEST.fullmatch(value) and (name, value) != ("payload", BUILTIN):
            found.append(Problem((name,), "must be a sha256: 64 digits of 0-9 and a-f"))
    limits = {"hold_minutes": _MOST_HOLD, "reruns": _MOST_RERUNS, "reuse_hours": _MOST_HOURS}
    for name, most in limits.items():
        value = getattr(form, name)
        number = _number(value)
        if value and (number is None or number > most):
            found.append(Problem((name,), f"must be a number from 0 to {most}"))
    if form.reruns and not form.reruns.isdecimal():
        found.append(Problem(("reruns",), "must be a whole number"))
    if not any(form.is_chosen(platform.id) for platform in matrix.platforms):
        found.append(Problem(("platforms",), "choose at least one"))
    return found


def _source(context: Context, form: LaunchForm, matrix: Matrix) -> Source:
    """Return the matrix's text, or the changed document if the form changes the matrix."""
    subject = _subject(form)
    if not subject and not form.source:
        return form.text
    document = context.documents.matrix_document(matrix)
    own = document.get("subject")
    stated: dict[str, object] = dict(own) if isinstance(own, Mapping) else {}
    if form.source:
        for name in ("wheel", "package", "git"):
            stated.pop(name, None)
    return {**document, "subject": {**stated, **subject}}


def _subject(form: LaunchForm) -> Mapping[str, object]:
    """Return the form's subject fields, which override the matrix."""
    said: dict[str, object] = {}
    if form.subject:
        said["name"] = form.subject
    if form.version:
        said["version"] = form.version
    if form.source == "package":
        said["package"] = form.package
    elif form.source == "wheel":
        said["wheel"] = "uploaded.whl"
    elif form.source == "git":
        said["git"] = {"url": form.url, "rev": form.rev}
    return said


def _only(
    context: Context, order: LaunchOrder, form: LaunchForm
) -> Mapping[str, Sequence[str]] | None:
    """Return the selected jobs of the selected platforms; None if all are selected."""
    if not any(not form.is_chosen(name) for name in form.known):
        return None
    _, plans = check_order(context, order, find_payload(context, order.payload))
    return {plan.id: plan.jobs for plan in plans if form.is_chosen(plan.platform.id)}


def _retests(form: LaunchForm) -> RetestOptions | None:
    reruns = int(form.reruns or 0)
    if not (reruns or form.diagnose):
        return None
    return RetestOptions(reruns=reruns, diagnose=form.diagnose)


def _seconds(hours: str) -> float | None:
    number = _number(hours)
    return number * 3600 if number else None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


_PLACES = 6
_CELLS = (
    Column("cell", "Cell"),
    Column("provider", "Provider"),
    Column("jobs", "Jobs"),
    Column("places", "Places, in this order"),
    Column("worst_usd", "At most", is_number=True),
)
_HEADROOM = (
    Column("quota", "Quota"),
    Column("where", "Where"),
    Column("needed", "Needs", is_number=True),
    Column("free", "Free"),
    Column("quota_status", "Quota status"),
    Column("ask", "Request"),
)


def cell_table(plan: Plan) -> Table:
    """Return the table of planned cells: machines, places and maximum costs."""
    return Table(
        id="plan",
        caption="Cells",
        columns=_CELLS,
        rows=[_row(cell) for cell in plan.cells],
        is_caption_hidden=True,
        is_passing=True,
    )


def _row(planned: PlannedCell) -> Row:
    cell = planned.cell
    jobs = ", ".join(cell.jobs) or "none"
    environment = "" if cell.environment == "image" else cell.environment
    return Row(
        (
            Text(cell.id, note=environment),
            Text(cell.platform.provider, note="optional" if cell.platform.optional else ""),
            Text(plural(len(cell.jobs), "job"), note=jobs),
            Text(planned.note) if planned.note else CellList(list(_places(planned))),
            Usd(planned.worst_usd, is_most=True),
        ),
        tone="warn" if planned.note or planned.worst_usd is None else "",
    )


def _places(planned: PlannedCell) -> Iterator[TableCell]:
    for place in planned.places[:_PLACES]:
        yield Text(place.name, note=_about(place))
    if len(planned.places) > _PLACES:
        yield Text(f"and {len(planned.places) - _PLACES} more")


def _about(place: Place) -> str:
    parts = (place.instance_type, place.market, hourly(place.usd_per_hour))
    return ", ".join(part for part in parts if part)


def headroom_table(plan: Plan) -> Table:
    """Return the table of quotas that the matrix needs."""
    return Table(
        id="headroom",
        caption="Quotas",
        columns=_HEADROOM,
        rows=[_headroom(one) for one in plan.headroom],
        is_caption_hidden=True,
        is_passing=True,
    )


def _headroom(headroom: Headroom) -> Row:
    quota, level = headroom.quota, headroom.level
    return Row(
        (
            Text(f"{quota.provider} {quota.name}", note=quota.code),
            Text(quota.scope),
            Number(headroom.needed, quota.unit),
            Text(free_of(level.limit, level.used)),
            Badge("insufficient" if headroom.status is QuotaStatus.SHORT else headroom.status),
            Text("" if headroom.status is QuotaStatus.OK else headroom.sentence),
        ),
        tone="" if headroom.status is QuotaStatus.OK else "warn",
    )


def total(plan: Plan) -> str:
    """Return a plan's sums: ``5 cells, 25 jobs, at most $4.02 an attempt (limit $12.00)``."""
    jobs = sum(len(cell.cell.jobs) for cell in plan.cells)
    return totals(len(plan.cells), jobs, plan.worst_usd, plan.max_usd)


def warnings(plan: Plan) -> list[str]:
    """Return the warnings of a plan."""
    limit = limit_warning(plan.known_usd, plan.max_usd)
    found = [f"{limit}."] if limit else []
    short = sum(one.status is QuotaStatus.SHORT for one in plan.headroom)
    if short:
        found.append(f"{plural(short, 'quota is', 'quotas are')} too small for this.")
    return found + [f"{text}." for text in plan.warnings]


_FIELDS = (
    *("subject", "version", "source", "package", "wheel", "url", "rev"),
    *("payload", "baseline", "hold_minutes", "reruns", "reuse_hours"),
)
_LONGEST_FIELD = 2_000
_TRIES = 40
_PAUSE_S = 0.25
_CONTEXT_LINES = 1

router = APIRouter()


@dataclass(frozen=True, slots=True)
class FieldError:
    """A mistake in the form, with the line of the text that it concerns."""

    where: str
    message: str
    line: int | None = None
    column: int | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class FormPlan:
    """The plan of a form, or its problems."""

    plan: Plan | None = None
    matrix: Matrix | None = None
    mistakes: Sequence[FieldError] = ()
    refused: str = ""
    changed: bool = False
    """Whether the values differ from the planned ones."""


@router.get(urls.LAUNCH)
def show_launch(request: PageRequestDep, matrix: str = "", run: str = "") -> Response:
    """Show the form with the text of a built-in matrix, or with the parameters of a run."""
    if not request.viewer.may(Scope.RUN):
        viewer = request.viewer
        raise NotAllowedError(missing_scope(viewer.caller, Scope.RUN))
    if run:
        form = _form_of(request.context, run_of(request, run))
        return _answer(request, form, _read(request, form))
    ready = _ready()
    if matrix and matrix not in ready:
        names = ", ".join(ready) or "none"
        raise PageMissingError(f"there is no ready matrix {matrix!r}; there is: {names}")
    name = matrix or next(iter(ready), "")
    form = LaunchForm(name=f"{name}.yaml" if name else "matrix", text=ready.get(name, ""))
    return _answer(request, form, _read(request, form))


def _form_of(context: Context, run: Run) -> LaunchForm:
    """Return the form of the launch that made the run, with its uploads by their digests."""
    spec = context.stores.runs.spec(run.id)
    trials = spec.retests or RetestOptions()
    hours = (spec.reuse_max_age_s or 0.0) / 3600
    return LaunchForm(
        name=run.matrix_name,
        text=context.documents.matrix_text(spec.matrix),
        wheel=spec.subject_digest or "",
        payload=run.payload_digest,
        baseline=spec.baseline_digest or "",
        hold_minutes=f"{spec.hold_minutes:g}" if spec.hold_minutes else "",
        reruns=str(trials.reruns or ""),
        diagnose=trials.diagnose,
        reuse_hours=f"{hours:g}" if hours else "",
    )


@router.post(urls.LAUNCH)
async def launch(
    request: PageRequestDep,
    viewer: Annotated[Viewer, needs(Scope.RUN, uploads=True)],
    http_request: Request,
) -> Response:
    """Plan a launch, or start the planned one; idempotent by the form's key."""
    sent = await http_request.form()
    try:
        form = _form(sent, await _uploaded(sent))
        stored = await run_in_threadpool(store_uploads, request.context, sent)
        form = replace(
            form,
            payload=stored.get("payload", form.payload),
            wheel=stored.get("wheel", form.wheel),
            source="wheel" if "wheel" in stored else form.source,
        )
    except InvalidDocumentError as error:
        found = FormPlan(mistakes=_mistakes(request, error, form))
        return await run_in_threadpool(_answer, request, form, found)
    finally:
        await sent.close()
    if sent.get("action") != "start":
        found = await run_in_threadpool(_planned, request, form)
        return await run_in_threadpool(_answer, request, form, found)
    if sent.get("planned") != form.fingerprint:
        found = await run_in_threadpool(_planned, request, form, changed=True)
        return await run_in_threadpool(_answer, request, form, found, status=409)
    key = str(sent.get("key") or request.context.new_id())[:100]
    started = await _started(request, form, key)
    if isinstance(started, Run):
        return request.go(urls.run_url(started.id))
    return await run_in_threadpool(_answer, request, form, started)


async def _started(request: PageRequest, form: LaunchForm, key: str) -> Run | FormPlan:
    """Start the launch; return the run, or the problems of the form.

    After a double click the browser shows the answer to the second request, so the second request
    waits for the first one and returns its run.
    """
    for _ in range(_TRIES):
        try:
            return await run_in_threadpool(_start, request, form, key)
        except KeyInFlightError:
            await anyio.sleep(_PAUSE_S)
    return FormPlan(refused="It is being launched; /runs shows it as soon as it is there.")


def _start(request: PageRequest, form: LaunchForm, key: str) -> Run | FormPlan:
    try:
        order, _ = order_of(request.context, form)
        claim = form_key(key, "launch", form.fingerprint)
        return launch_run(request.context, order, claim).run
    except InvalidDocumentError as error:
        return FormPlan(mistakes=_mistakes(request, error, form))
    except (PayloadMissingError, KeyReusedError) as error:
        return FormPlan(refused=str(error))


def _planned(request: PageRequest, form: LaunchForm, *, changed: bool = False) -> FormPlan:
    if not form.text.strip():
        return FormPlan(refused="Write a matrix, choose a ready one, or send a file.")
    matrix: Matrix | None = None
    try:
        matrix = request.context.documents.read_matrix(form.text, form.name)
        order, matrix = order_of(request.context, form)
        return FormPlan(plan_run(request.context, order), matrix, changed=changed)
    except InvalidDocumentError as error:
        return FormPlan(matrix=matrix, mistakes=_mistakes(request, error, form))
    except PayloadMissingError as error:
        return FormPlan(matrix=matrix, refused=str(error))


def _read(request: PageRequest, form: LaunchForm) -> FormPlan:
    """Return the form's matrix without a plan, so that no provider is asked for prices."""
    try:
        return FormPlan(matrix=request.context.documents.read_matrix(form.text, form.name))
    except InvalidDocumentError:
        return FormPlan()


def _answer(
    request: PageRequest, form: LaunchForm, result: FormPlan, *, status: int = 0
) -> Response:
    plan = result.plan
    if result.matrix is not None:
        form = form.about(result.matrix)
    facts = {
        "form": form,
        "found": result,
        "ready": list(_ready()),
        "sources": SOURCES,
        "platforms": [platform.id for platform in result.matrix.platforms] if result.matrix else [],
        "stated": result.matrix.subject if result.matrix else None,
        "plan": cell_table(plan) if plan else None,
        "headroom": headroom_table(plan) if plan else None,
        "total": total(plan) if plan else "",
        "warnings": warnings(plan) if plan else [],
        "shipments": shipments_in_words(plan.shipments) if plan else [],
        "key": request.context.new_id(),
        "payload_about": about_payload(request.context, form.payload) if form.payload else "",
    }
    is_wrong = bool(result.mistakes or result.refused)
    page = Page(template="launch.html.j2", title="Launch", facts=facts, section=urls.LAUNCH)
    return request.answer(page, status=status or (422 if is_wrong else 200))


def _ready() -> dict[str, str]:
    """Return the matrices that come with Seatrial, by name."""
    folder = asset_dir("matrices")
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yaml"))}


async def _uploaded(sent: FormData) -> tuple[str, str]:
    """Return name and text of an uploaded file; empty without one."""
    file = sent.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        return "", ""
    data = await file.read(MOST_CHARACTERS)
    return file.filename[:200], data.decode("utf-8", "replace")


def _form(sent: FormData, uploaded: tuple[str, str]) -> LaunchForm:
    def text(name: str, longest: int = _LONGEST_FIELD) -> str:
        value = sent.get(name, "")
        return value[:longest] if isinstance(value, str) else ""

    def several(name: str) -> tuple[str, ...]:
        return tuple(value[:200] for value in sent.getlist(name) if isinstance(value, str))

    file, content = uploaded
    written = text("text", MOST_CHARACTERS).replace("\r\n", "\n")
    return LaunchForm(
        name=file or text("name", 200) or "matrix",
        text=content or written,
        platforms=() if content else several("platform"),
        known=() if content else several("known"),
        diagnose=bool(text("diagnose")),
        **{name: text(name).strip() for name in _FIELDS},
    )


def _mistakes(
    request: PageRequest, error: InvalidDocumentError, form: LaunchForm
) -> list[FieldError]:
    """Return the errors with line numbers of the text, also for values that the form changed."""
    problems = error.problems
    if error.name == form.name and all(problem.line is None for problem in problems):
        try:
            request.context.documents.refuse_matrix(form.text, form.name, problems)
        except InvalidDocumentError as located:
            problems = located.problems
    lines = form.text.split("\n")
    return [_mistake(problem, lines) for problem in problems]


def _mistake(problem: Problem, lines: Sequence[str]) -> FieldError:
    where = ".".join(str(part) for part in problem.path)
    if problem.line is None or not 0 < problem.line <= len(lines):
        return FieldError(where, problem.message)
    return FieldError(
        where, problem.message, problem.line, problem.column, _excerpt(problem, lines)
    )


def _excerpt(problem: Problem, lines: Sequence[str]) -> str:
    """Return the line with the one before it, and a mark below the position."""
    at = problem.line or 1
    first = max(1, at - _CONTEXT_LINES)
    shown = [f"{number:>4}  {lines[number - 1][:200]}" for number in range(first, at + 1)]
    if problem.column is not None and problem.column <= 200:
        shown.append(" " * (5 + problem.column) + "^")
    return "\n".join(shown)
