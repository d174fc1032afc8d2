"""One cell of a run: its tests, jobs, machine and evidence."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from orchestrator.application.describe_run import describe_cell
from orchestrator.application.reused_results import by_source
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import visible
from orchestrator.dashboard.pages.run.cells import cell_jobs, held_s, tally_of, why_of
from orchestrator.dashboard.pages.run.routes import EXPORTS, LOUD, CellNotice, repeated
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    cell_of,
    run_of,
)
from orchestrator.dashboard.table import (
    Badge,
    Column,
    Number,
    Row,
    Span,
    Table,
    Text,
    Trace,
    named_test,
)
from orchestrator.domain.cell import Cell, CellState, Run
from orchestrator.domain.charges import PRICE_UNKNOWN, why_no_cost
from orchestrator.domain.environment_fingerprint import PACKAGE, traits
from orchestrator.domain.event_facts import MetricFact
from orchestrator.domain.manifest import output_artifact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, artifacts_of_test
from orchestrator.domain.units import measured, plural, price, size
from orchestrator.domain.vocabulary import term
from orchestrator.extras import is_installed
from orchestrator.store.results import TestLine, TestsAsked
from orchestrator.store.sql import ListPage

_METRICS = 100
"""Maximum metrics on the page; its other formats have all metrics."""
_NOTICES = 20
_CHECKS = (
    Column("check", "Check"),
    Column("job", "Job"),
    Column("outcome", "Outcome"),
    Column("value", "Value"),
    Column("tolerance", "Tolerance"),
    Column("reason", "Reason"),
)
_METRIC_COLUMNS = (
    Column("metric", "Metric"),
    Column("job", "Job"),
    Column("median", "Median", is_number=True),
    Column("unit", "Unit"),
    Column("samples", "Samples", is_number=True),
    Column("better", "Better"),
)
_ARTIFACTS = (
    Column("name", "File"),
    Column("size_bytes", "Size", is_number=True),
    Column("sha256", "sha256"),
)


def check_table(cell: CellRecord) -> Table:
    """Return the table of checks, those that did not pass first."""
    checks = [check for job in cell.jobs for check in job.checks]
    checks.sort(key=lambda check: check.outcome == "passed")
    rows = [
        Row(
            (
                Text(check.name),
                Text(check.job),
                Badge(check.outcome),
                Text(f"{measured(check.value, apart_from=check.tolerance)} {check.unit}".strip()),
                Text(measured(check.tolerance)),
                Text(check.reason),
            ),
            tone="bad" if check.outcome == "failed" else "",
        )
        for check in checks
    ]
    return Table(id="checks", caption="Checks", columns=_CHECKS, rows=rows, is_caption_hidden=True)


def metric_table(cell: CellRecord, *, whole: bool) -> Table:
    """Return the table of metrics."""
    metrics = [metric for job in cell.jobs for metric in job.metrics]
    # Trends need a library that this installation may be without.
    has_trend = is_installed("statistics")
    shown = metrics if whole else metrics[:_METRICS]
    return Table(
        id="metrics",
        caption="Metrics",
        columns=_METRIC_COLUMNS,
        rows=[_metric(metric, has_trend=has_trend) for metric in shown],
        total=len(metrics),
        is_caption_hidden=True,
    )


def _metric(metric: MetricFact, *, has_trend: bool) -> Row:
    params = ", ".join(f"{name}={value}" for name, value in sorted(metric.params.items()))
    middle = statistics.median(metric.samples) if metric.samples else None
    href = urls.benchmark_url(metric.job, metric.name) if has_trend else ""
    return Row(
        (
            Text(metric.name, href, note=params),
            Text(metric.job),
            Number(middle),
            Text(metric.unit),
            Number(len(metric.samples)),
            Text(metric.direction),
        )
    )


def _artifact_name(run_id: str, cell: str, one: ArtifactRecord) -> Text:
    """Return the link to an artifact; a pruned one has its name and the day of pruning."""
    if one.pruned_at is not None:
        return Text(f"{one.name} (pruned on {one.pruned_at:%Y-%m-%d})", is_code=True)
    return Text(one.name, urls.artifact_url(run_id, cell, one.name), is_code=True)


def artifact_table(run_id: str, cell: CellRecord) -> Table:
    """Return the table of the cell's artifacts."""
    rows = [
        Row(
            (
                _artifact_name(run_id, cell.id, one),
                Bytes(one.size_bytes),
                Text(one.digest, short=f"{one.digest[:12]}…", is_code=True),
            )
        )
        for one in cell.artifacts
    ]
    return Table(
        id="artifacts", caption="Files", columns=_ARTIFACTS, rows=rows, is_caption_hidden=True
    )


def fact_table(cell: CellRecord) -> Table:
    """Return the table of environment facts without packages, the machine, and its attestation."""
    known = {k: v for k, v in traits(cell.probed).items() if not k.startswith(PACKAGE)}
    facts = [("environment", cell.environment), *known.items(), *_machine(cell), *_facts(cell)]
    rows = [Row((Text(name), Text(value))) for name, value in facts if value]
    columns = (Column("fact", "What"), Column("value", "Value"))
    return Table(
        id="environment",
        caption="Environment and machine",
        columns=columns,
        rows=rows,
        is_caption_hidden=True,
    )


def package_table(cell: CellRecord) -> Table:
    """Return the table of installed packages."""
    found = {
        name.removeprefix(PACKAGE): version
        for name, version in traits(cell.probed).items()
        if name.startswith(PACKAGE)
    }
    rows = [Row((Text(name), Text(found[name], is_code=True))) for name in sorted(found)]
    columns = (Column("package", "Package"), Column("version", "Version"))
    return Table(
        id="packages", caption="Packages", columns=columns, rows=rows, is_caption_hidden=True
    )


def cell_notices(cell: CellRecord) -> Sequence[CellNotice]:
    """Return the notices that limit what the cell's results prove."""
    found = []
    if cell.simulated:
        found.append(CellNotice("", "warn", "Simulated: no gate accepts this evidence."))
    if cell.attestation is not None and cell.attestation.mismatch:
        found.append(CellNotice("", "bad", cell.attestation.mismatch))
    if cell.ingested is not None:
        how = cell.ingested.provenance.replace("_", " ")
        many = plural(len(cell.ingested.sources), "artifact")
        found.append(
            CellNotice("", "warn", f"Ingested ({how}, {many}): no agent of ours attests it.")
        )
        for source in cell.ingested.inconsistent:
            text = f"INCONSISTENT: {source.name}: {'; '.join(source.remarks)}"
            found.append(CellNotice("", "bad", text))
    told = Counter((x.job, LOUD.get(x.level, "quiet"), x.message) for x in cell.notices)
    newest = list(told.items())[-_NOTICES:]
    return [*found, *(CellNotice(job, tone, repeated(text, n)) for (job, tone, text), n in newest)]


def _where(cell: CellRecord) -> str:
    """Return the provider, and its last machine but of this computer: ``static, me@host:22``."""
    provider = cell.platform.provider
    named = [lease.address or lease.machine_id for lease in cell.leases if lease.machine_id]
    return ", ".join([provider, *(named[-1:] if provider != "local" else [])])


def _machine(cell: CellRecord) -> list[tuple[str, str]]:
    held = [lease for lease in cell.leases if lease.machine_id]
    if not held:
        return []
    last = held[-1]
    hourly = last.price_usd_per_hour
    rate = PRICE_UNKNOWN if hourly is None else f"{price(hourly)} an hour"
    kind = ", ".join(part for part in (last.instance_type, last.market) if part)
    return [
        ("machine", last.machine_id),
        ("kind", kind),
        ("place", last.place),
        ("image", f"{last.image_id} {last.image_name}".strip()),
        ("price", why_no_cost(last) or rate),
        ("held", Span(held_s(last)).text()),
    ]


def _facts(cell: CellRecord) -> list[tuple[str, str]]:
    if cell.attestation is None:
        return []
    return [
        ("attested device", ", ".join(part for part in (one.name, one.uuid, one.driver) if part))
        for one in cell.attestation.devices
    ]


class Bytes(Number):
    """A size in bytes, shown with its unit."""

    def text(self) -> str:
        """The value as ``4.2 kB``; a dash if it is unknown."""
        return "–" if self.value is None else size(int(self.value))


PAGE_SIZE = 100
_COLUMNS = (
    Column("test", "Test"),
    Column("outcome", "Outcome"),
    Column("message", "Message"),
    Column("signature", "Failure"),
    Column("duration_s", "Duration", is_number=True),
)
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)


def test_table(
    request: PageRequest,
    run: Run,
    cell: Cell,
    lines: ListPage[TestLine, str],
    *,
    is_filtered: bool,
) -> Table:
    """Return a page of the cell's tests, the worst first."""
    empty = "No test of the cell is like that." if is_filtered else "No test was collected so far."
    return Table(
        id="tests",
        caption="Tests, the worst first",
        columns=_COLUMNS,
        rows=[_row(run, cell, line) for line in lines],
        next=request.here(after=lines.next) if lines.next else "",
        empty=empty,
        is_caption_hidden=True,
    )


test_table.__test__ = False  # type: ignore[attr-defined]


def _row(run: Run, cell: Cell, line: TestLine) -> Row:
    here = urls.result_url(run.id, cell.name, line.test_id)
    first = line.message.partition("\n")[0]
    said_words = ": ".join(part for part in (line.reason.replace("_", " "), first) if part)
    message = (
        Trace(said_words or "traceback", here, f"{here}.json")
        if line.has_text
        else Text(said_words)
    )
    failure = urls.signature_url(line.signature) if line.signature else ""
    return Row(
        (
            named_test(line.nodeid, line.job, urls.test_url(line.test_id), is_code=True),
            Badge(_word(line, cell), here, note=_earlier(line)),
            message,
            Text(line.signature, failure, is_code=bool(line.signature)),
            Span(line.duration_s if line.outcome is not TestOutcome.NOT_RUN else None),
        ),
        tone="bad" if line.outcome in _BAD else "",
    )


def _word(line: TestLine, cell: Cell) -> str:
    """Return an outcome's label; a test without a result is awaited while the cell runs."""
    is_awaited = line.outcome is TestOutcome.MISSING and cell.state is not CellState.DONE
    return "queued" if is_awaited else line.outcome.word


def _earlier(line: TestLine) -> str:
    if not line.earlier:
        return ""
    return f"before: {', '.join(term(one.word).word for one in line.earlier)}"


_EVENTS = "cell evidence run end"
_LONGEST_TEXT = 200_000
"""Maximum characters of a traceback; the JUnit export has the whole text."""
_ORDER = (
    *(TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.MISSING, TestOutcome.NOT_RUN),
    *(TestOutcome.PASSED, TestOutcome.SKIPPED, TestOutcome.XFAILED, TestOutcome.XPASSED),
)
_OUTCOMES = {one.word: one for one in _ORDER}

router = APIRouter()


@router.get(urls.RUNS + "/{run}/cells/{cell}")
def show_cell(
    request: PageRequestDep,
    run: str,
    cell: str,
    outcome: str = "",
    job: str = "",
    contains: Annotated[str, Query(max_length=500)] = "",
    after: str = "",
) -> Response:
    """Show the cell: its tests, worst first, with metrics, checks and artifacts."""
    found_run = run_of(request, run)
    found = cell_of(request, found_run, cell)
    if found_run.id != run and request.wanted is Format.HTML:
        return request.go(urls.with_query(urls.cell_url(found_run.id, cell), **request.query))
    chosen = TestsAsked(
        outcome=_OUTCOMES.get(outcome.strip()), job=job.strip(), contains=contains.strip()
    )
    return request.answer(_page(request, found_run, found, chosen, after))


def _page(request: PageRequest, run: Run, cell: Cell, chosen: TestsAsked, after: str) -> Page:
    stores = request.context.stores
    seen = stores.run_events.last(run.id)
    record = describe_cell(stores, cell, stores.runs.spec(run.id), at=request.now)
    lines = stores.results.worst_first(
        cell.id, _lent(request, cell), chosen, limit=PAGE_SIZE, after=after
    )
    whole = request.wanted is not Format.HTML
    tables = (
        test_table(request, run, cell, lines, is_filtered=chosen != TestsAsked()),
        cell_jobs(run, record, request.now),
        check_table(record),
        metric_table(record, whole=whole),
        artifact_table(run.id, record),
        fact_table(record),
        package_table(record),
    )
    facts = {
        "run": run,
        "cell": record,
        "is_over": record.state is CellState.DONE,
        "tally": tally_of(record),
        "where": _where(record),
        "chosen": chosen,
        "is_filtered": chosen != TestsAsked(),
        "outcomes": [(one.word, term(one.word).word) for one in _ORDER],
        "tables": {table.id: table for table in tables},
        "said": cell_notices(record),
        "why": why_of(record),
        "events": urls.with_query(urls.events_url(run.id), after=str(seen)),
        "event_kinds": _EVENTS,
        "exports": [(name, urls.export_url(run.id, name, cell.name)) for name in EXPORTS],
        "report": urls.report_url(run.id, "platform", cell.name),
        "log": urls.log_url(run.id, cell.name),
    }
    title = f"{cell.name} · {run.subject_name} {run.subject_version}"
    return Page(template="cell.html.j2", title=title, tables=tables, facts=facts, section=urls.RUNS)


@router.get(urls.RUNS + "/{run}/cells/{cell}/tests/{test}")
def show_result(
    request: PageRequestDep,
    run: str,
    cell: str,
    test: Annotated[int, Path(ge=0, le=2**31 - 1)],
) -> Response:
    """Show the result of one test in the cell, with its whole text."""
    found_run = run_of(request, run)
    found = cell_of(request, found_run, cell)
    line = request.context.stores.results.line(found.id, _lent(request, found), test)
    if line is None:
        raise PageMissingError(f"cell {cell!r} of run {found_run.id} has no test {test}")
    shown = visible(line.text[:_LONGEST_TEXT])
    names = [one.name for one in request.context.stores.results.artifacts(found.id)]
    output = output_artifact(line.job)
    artifacts = artifacts_of_test(names, line.job, line.nodeid)
    facts = {
        "run": found_run,
        "cell": found,
        "line": line,
        "shown": shown,
        "hidden": max(0, len(line.text) - _LONGEST_TEXT),
        "earlier": [outcome.word for outcome in line.earlier],
        "artifacts": artifacts,
        "output": output if output in names else "",
    }
    page = Page(
        template="result.html.j2",
        title=line.nodeid,
        facts=facts,
        data=_data(line, shown) | {"artifacts": list(artifacts)},
        section=urls.RUNS,
    )
    return request.answer(page)


def _data(line: TestLine, shown: str) -> dict[str, object]:
    return {
        "test": line.test_id,
        "job": line.job,
        "nodeid": line.nodeid,
        "outcome": line.outcome.word,
        "earlier": [outcome.word for outcome in line.earlier],
        "duration_s": line.duration_s,
        "reason": line.reason,
        "message": line.message,
        "signature": line.signature,
        "text": line.text,
        "shown": shown,
    }


def _lent(request: PageRequest, cell: Cell) -> dict[str, tuple[str, ...]]:
    return by_source(request.context.stores.reusable_results.decided(cell.id))
