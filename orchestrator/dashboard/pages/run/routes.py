"""The page of a run: its content, its failures and its actions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, get_args

from fastapi import APIRouter, Form, Response

from orchestrator.application.describe_run import record_of_run
from orchestrator.application.end_run import cancel_run
from orchestrator.application.launch_run import (
    IdempotencyKey,
    KeyInFlightError,
    KeyReusedError,
    PayloadMissingError,
)
from orchestrator.application.rerun_run import (
    NothingToRerunError,
    Only,
    StillRunningError,
    is_of_kind,
    rerun_run,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, bar
from orchestrator.dashboard.pages.run import cells
from orchestrator.dashboard.pages.run import cells as jobs
from orchestrator.dashboard.pages.run.cells import PHASES
from orchestrator.dashboard.responses import Format, Page, PageRequest, PageRequestDep, run_of
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Badge,
    Column,
    Moment,
    Number,
    Row,
    Table,
    TestCounts,
    Text,
    named_test,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.cell import CellState, LeaseState, Run, RunState
from orchestrator.domain.charges import Cost
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.failure_signature import FailureGroup
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import RunRecord, are_ingested, ingested_s, note_of_run
from orchestrator.domain.units import price, sentence, usd
from orchestrator.store.cell_results import Depth
from orchestrator.store.runs import RunsAsked

SHOWN = 40
"""Maximum rows of each table on the page; its other formats have all rows."""
_GROUPS = (
    Column("signature", "Failure"),
    Column("results", "Results", is_number=True),
    Column("tests", "Tests", is_number=True),
    Column("cells", "Cells"),
    Column("first_seen", "First seen"),
    Column("known", "Known"),
)
_DIAGNOSED = (
    Column("test", "Test"),
    Column("cell", "Cell"),
    Column("answer", "Root cause"),
    Column("evidence", "Why"),
    Column("tried", "Retests"),
)
_KNOWN = (
    Column("issue", "Known issue"),
    Column("state", "State"),
    Column("results", "Results", is_number=True),
    Column("about", "About"),
    Column("owner", "Owner"),
)
_QUARANTINED = (
    Column("test", "Test"),
    Column("cell", "Cell"),
    Column("quarantine", "Quarantine"),
    Column("state", "State"),
)


def failure_group_table(record: RunRecord, most: int | None = None) -> Table:
    """Return the run's failure groups, the largest first."""
    return Table(
        id="failures",
        caption="Failure groups",
        columns=_GROUPS,
        rows=[_group_row(one) for one in record.failure_groups[:most]],
        total=len(record.failure_groups),
        empty="Nothing failed so far.",
        is_caption_hidden=True,
    )


def _group_row(group: FailureGroup) -> Row:
    known = ", ".join((*group.known_issues, *group.quarantines))
    tolerated = f"{group.tolerated} of {group.count} tolerated" if known else ""
    place = urls.KNOWN_ISSUES if group.known_issues else urls.FLAKY if known else ""
    signature, more = group.signature, len(group.tests) - 1
    first = f"{group.tests[0]} and {more} more" if more > 0 else "".join(group.tests)
    return Row(
        (
            Text(
                f"{signature.exception or 'failure'}: {group.message or signature.message}",
                urls.signature_url(signature.id),
                note=" · ".join(part for part in (first, signature.frame, signature.id) if part),
            ),
            Number(group.count),
            Number(group.test_count),
            Text(", ".join(group.cells)),
            Moment(group.first_seen),
            Text(known or "not known", place, note=tolerated),
        ),
        tone="" if known else "bad",
    )


def diagnosis_table(record: RunRecord, most: int | None = None) -> Table:
    """Return the root causes of the failing tests that were retested."""
    rows = [
        Row(
            (
                named_test(one.nodeid, one.job) if one.nodeid else Text(one.job),
                Text(one.cell, urls.cell_url(record.run.id, one.cell)),
                Badge(one.answer),
                Text(one.sentence),
                Text(one.tried),
            )
        )
        for one in record.diagnosed[:most]
    ]
    return Table(
        id="diagnosed",
        caption="Root cause",
        columns=_DIAGNOSED,
        rows=rows,
        total=len(record.diagnosed),
        is_caption_hidden=True,
    )


def known_table(record: RunRecord) -> Table:
    """Return the known issues that match failures of the run, expired ones included."""
    rows = [
        Row(
            (
                Text(use.issue.id, urls.KNOWN_ISSUES),
                Badge(use.state),
                Number(use.count),
                Text(use.issue.title),
                Text(use.issue.owner),
            )
        )
        for use in record.known_issues
        if use.count
    ]
    return Table(
        id="known_issues",
        caption="Known issues that match failures of the run",
        columns=_KNOWN,
        rows=rows,
        is_caption_hidden=True,
    )


def quarantine_table(record: RunRecord, most: int | None = None) -> Table:
    """Return failing results of quarantined tests; they stay failures in every count."""
    rows = [
        Row(
            (
                named_test(one.nodeid, one.job),
                Text(one.cell, urls.cell_url(record.run.id, one.cell)),
                Text(one.quarantine.id, urls.FLAKY, note=one.quarantine.reason),
                Badge(one.state),
            )
        )
        for one in record.quarantined[:most]
    ]
    return Table(
        id="quarantined",
        caption="Failing results of tests in quarantine",
        columns=_QUARANTINED,
        rows=rows,
        total=len(record.quarantined),
        is_caption_hidden=True,
    )


EXPORTS = ("junit", "ctrf", "csv", "json", "intoto")
_NOT_OF_A_RUN = ("platform", "compare")
"""Kinds of reports about a cell or about two runs."""
_EVENTS = "cell evidence run report end"
"""Kinds of events after which the page is loaded again; log events are not among them."""
_KINDS: tuple[tuple[Only, str], ...] = (
    ("failed", "what failed or timed out"),
    ("errored", "what errored"),
    ("missing", "what has missing tests"),
    ("not-run", "what was not run"),
)
LOUD = {"error": "bad", "warning": "warn"}
"""Levels of notices that a person should see, and their tones."""
_NOTICES = 20
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a run and their limit."""

    spent: Cost
    limit_usd: Decimal | None
    usd_per_s: Decimal
    """Price per second of the machines that are held now."""

    @property
    def words(self) -> str:
        """The amount as ``$1.20``."""
        return usd(self.spent_usd) if self.spent_usd is not None else "–"

    @property
    def spent_usd(self) -> Decimal | None:
        """The known amount; None if no machine has a price."""
        return self.spent.usd

    @property
    def limit(self) -> str:
        """The note about the cost limit."""
        if self.spent_usd is None:
            return self.spent.no_cost
        if self.limit_usd is None:
            return "no limit: nothing is rented"
        return f"of at most {price(self.limit_usd)}"

    @property
    def picture(self) -> Picture | None:
        """Return a bar of the used part of the limit."""
        if not self.limit_usd or self.spent_usd is None:
            return None
        share = min(float(self.spent_usd / self.limit_usd), 1.0)
        return bar([("busy" if share < 0.8 else "warn", share), ("rest", 1 - share)], width=200)


@dataclass(frozen=True, slots=True)
class CellNotice:
    """A notice about a cell for a person."""

    cell: str
    tone: str
    text: str
    command: str = ""


def run_page(
    request: PageRequest, run: Run, seen: int, *, refused: str = "", chosen: str = ""
) -> Page:
    """Return the page.

    Args:
        request: The request.
        run: The run.
        seen: Number of its newest event, read first, so that no later one is missed.
        refused: Reason of a refused action.
        chosen: The cells or jobs that were to run again.
    """
    stores = request.context.stores
    cells, spec = stores.cells.of_run(run.id), stores.runs.spec(run.id)
    record = record_of_run(stores, run, cells, spec, at=request.now, depth=Depth.SHOWN)
    tables = _tables(record, request.now, whole=request.wanted is not Format.HTML)
    facts = {
        "run": record.run,
        "wheel": record.subject.wheel,
        "is_over": record.run.state is RunState.FINISHED,
        "note": note_of_run(record.run, record.counts),
        "tally": TestCounts(_counts(record), is_partial=run.outcome is Outcome.ERRORED),
        "done": sum(cell.state is CellState.DONE for cell in record.cells),
        "cell_count": len(record.cells),
        **_duration(record, request.now),
        "money": (money := Costs(record.cost, spec.matrix.limits.max_usd, _usd_per_s(record))),
        "tables": {table.id: table for table in tables},
        "pruned": [sentence(part.of(run.id)) for part in record.pruned],
        "said": [*_kept(record), *_simulated(record), *_undeclared(record), *_notices(record)],
        "events": urls.with_query(urls.events_url(run.id), after=str(seen)),
        "event_kinds": _EVENTS,
        "before": _before(request, run),
        "reports": _reports(request, run.id),
        "exports": [(name, urls.export_url(run.id, name)) for name in EXPORTS],
        "phase_names": [state.value for state in PHASES],
        "again": _again(record),
        "key": request.context.new_id(),
        "refused": refused,
        "chosen": chosen,
        "now": request.now,
    }
    return Page(
        template="run.html.j2",
        title=f"{run.subject_name} {run.subject_version}",
        tables=tables,
        facts=facts,
        data=_data(record, money),
        section=urls.RUNS,
    )


def _tables(record: RunRecord, now: datetime, *, whole: bool) -> Sequence[Table]:
    most = None if whole else SHOWN
    return (
        cells.cell_table(record, now),
        cells.phase_table(record, now),
        cells.attempt_table(record, now),
        jobs.job_table(record, now, most=None if whole else jobs.SHOWN),
        failure_group_table(record, most),
        diagnosis_table(record, most),
        known_table(record),
        quarantine_table(record, most),
        cells.machine_table(record),
        cells.decision_table(record),
    )


def _counts(record: RunRecord) -> Counts:
    return sum((cells.shown_counts(cell) for cell in record.cells), Counts())


def _duration(record: RunRecord, now: datetime) -> Mapping[str, object]:
    return {"is_ingested": are_ingested(record.cells), "seconds": _seconds(record, now)}


def _seconds(record: RunRecord, now: datetime) -> float | None:
    """Return the run's duration in seconds.

    If every cell was ingested, return the duration of the jobs, or None if it is unknown.
    """
    run = record.run
    if are_ingested(record.cells):
        return ingested_s(record.cells)
    return max(0.0, ((run.finished_at or now) - run.created_at).total_seconds())


def _usd_per_s(record: RunRecord) -> Decimal:
    held = (
        lease.price_usd_per_hour or Decimal(0)
        for cell in record.cells
        for lease in cell.leases
        if lease.state in (LeaseState.ACTIVE, LeaseState.RELEASING) and lease.machine_id
    )
    return sum(held, Decimal(0)) / _HOUR_S


def _kept(record: RunRecord) -> Iterator[CellNotice]:
    for cell in record.cells:
        if cell.kept_until is not None:
            until = f"{cell.kept_until:%H:%M:%S} UTC"
            text = f"Its machine is kept until {until}; cancel the run to release it."
            yield CellNotice(cell.id, "warn", text, f"seatrial ssh {record.run.id} {cell.id}")


def _simulated(record: RunRecord) -> Iterator[CellNotice]:
    names = [cell.id for cell in record.cells if cell.simulated]
    if names:
        text = "Simulated: no gate accepts this evidence."
        yield CellNotice(", ".join(names), "warn", text)


def _undeclared(record: RunRecord) -> Iterator[CellNotice]:
    for cell in record.cells:
        if cell.undeclared_note:
            yield CellNotice(cell.id, "", sentence(cell.undeclared_note))


def _notices(record: RunRecord) -> Iterator[CellNotice]:
    """Yield the agents' newest notice of each cell."""
    told = Counter(
        (cell.id, LOUD[one.level], f"{one.job}: {one.message}" if one.job else one.message)
        for cell in record.cells
        for one in cell.notices
        if one.level in LOUD
    )
    for (cell, tone, text), many in list(told.items())[-_NOTICES:]:
        yield CellNotice(cell, tone, repeated(text, many))


def repeated(text: str, many: int) -> str:
    """Return a notice, with its number if it is repeated: ``disk is full (3 times)``."""
    return f"{text} ({many} times)" if many > 1 else text


def _before(request: PageRequest, run: Run) -> Run | None:
    """Return the finished run before this one with the same matrix and subject, or None."""
    same = RunsAsked(state=RunState.FINISHED, subject=run.subject_name, matrix=run.matrix_name)
    found, _ = request.context.stores.runs.page(limit=1, before=run.id, filters=same)
    return found[0] if found else None


def _reports(request: PageRequest, run: str) -> Sequence[tuple[str, str]]:
    kinds = [kind for kind in request.context.report_kinds() if kind not in _NOT_OF_A_RUN]
    return [(kind, urls.report_url(run, kind)) for kind in kinds]


def _again(record: RunRecord) -> Sequence[tuple[str, str, int]]:
    """Return the jobs that can run again: (word, title, number of jobs)."""
    every = [(cell, job) for cell in record.cells for job in cell.jobs if cell.ingested is None]
    if not every:
        return ()
    counted = [
        (word, title, sum(is_of_kind(cell, job, word) for cell, job in every))
        for word, title in _KINDS
    ]
    return [("", "everything", len(every)), *counted]


def _data(record: RunRecord, money: Costs) -> Mapping[str, object]:
    run = record.run
    return {
        "run": run.id,
        "state": run.state,
        "outcome": run.outcome,
        "subject": {"name": run.subject_name, "version": run.subject_version},
        "wheel": record.subject.wheel,
        "matrix": run.matrix_name,
        "created_at": run.created_at.isoformat(),
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "counts": TestCounts(record.counts).plain(),
        "cost_usd": None if money.spent_usd is None else format(money.spent_usd, "f"),
        "max_usd": None if money.limit_usd is None else format(money.limit_usd, "f"),
    }


MayRun = Annotated[Viewer, needs(Scope.RUN)]
_ONLY: dict[str, Only | None] = {"": None, **{word: word for word in get_args(Only)}}
_CONFLICTS = (
    NothingToRerunError,
    StillRunningError,
    KeyInFlightError,
    KeyReusedError,
    PayloadMissingError,
    InvalidDocumentError,
)

router = APIRouter()


@router.post(urls.RUNS + "/{run}/cancel")
def cancel(request: PageRequestDep, viewer: MayRun, run: str) -> Response:
    """Request the run's cancellation; a finished run is unchanged."""
    found = run_of(request, run)
    cancel_run(request.context, found.id)
    return request.go(urls.run_url(found.id))


@router.post(urls.RUNS + "/{run}/rerun")
def rerun(
    request: PageRequestDep,
    viewer: MayRun,
    run: str,
    only: Annotated[str, Form(max_length=20)] = "",
    key: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    """Launch the run or some of its jobs again; idempotent by the form's key."""
    found = run_of(request, run)
    if only not in _ONLY:
        return _refused(request, found, f"{only!r} is nothing that can run again", only, 422)
    claim = form_key(key or request.context.new_id(), f"rerun {found.id}", only)
    try:
        launched = rerun_run(request.context, found.id, only=_ONLY[only], key=claim)
    except _CONFLICTS as error:
        return _refused(request, found, str(error), only, 409)
    return request.go(urls.run_url(launched.run.id))


def form_key(key: str, about: str, *values: str) -> IdempotencyKey:
    """Return the idempotency key of the form's values."""
    said = "\x00".join((about, *values))
    fingerprint = hashlib.sha256(said.encode()).hexdigest()
    return IdempotencyKey(f"page-{key}-{fingerprint[:12]}", fingerprint)


def _refused(request: PageRequest, run: Run, why: str, chosen: str, status: int) -> Response:
    seen = request.context.stores.run_events.last(run.id)
    page = run_page(request, run_of(request, run.id), seen, refused=why, chosen=chosen)
    return request.answer(page, status=status)


@router.get(urls.RUNS + "/{run}")
def show_run(request: PageRequestDep, run: str) -> Response:
    """Show a run without its single tests."""
    seen = request.context.stores.run_events.last(run)
    found = run_of(request, run)
    if found.id != run and request.wanted is Format.HTML:
        return request.go(urls.with_query(urls.run_url(found.id), **request.query))
    return request.answer(run_page(request, found, seen))
