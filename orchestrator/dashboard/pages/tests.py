"""Tests: search by name, and the page of one with its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from fastapi import APIRouter, Response

from orchestrator.application.history_of_test import CellTestHistory, TestDetail, follow_test
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import sparkline, strip
from orchestrator.dashboard.labels import ago
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_products,
    products,
)
from orchestrator.dashboard.table import (
    Badge,
    CellList,
    Column,
    Moment,
    PictureCell,
    Row,
    Span,
    Table,
    TableCell,
    TestCounts,
    Text,
    named_test,
)
from orchestrator.domain.failure_signature import BAD
from orchestrator.domain.flaky import NOT_COUNTED, flaky_signal
from orchestrator.domain.node_ids import KnownTest, split_nodeid
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import artifacts_of_test
from orchestrator.domain.units import duration, percent, plural
from orchestrator.domain.vocabulary import term
from orchestrator.store.grid_of_tests import CellResult, GridCell


def name_cell(test: KnownTest, *beside: str) -> Text:
    """Return the table cell of a test's name; `beside` follows its file and job."""
    path = split_nodeid(test.nodeid)[0]
    note = " · ".join(part for part in (path, test.job, *beside) if part)
    href, short = urls.test_url(test.id), short_name(test.nodeid)
    return named_test(test.nodeid, test.job, href, note=note, short=short)


def short_name(nodeid: str) -> str:
    """Return a node id without its file."""
    path = split_nodeid(nodeid)[0]
    return nodeid.removeprefix(path).removeprefix("::") or nodeid


_WIDTH = 120
_RUN_SHOWN = 10
"""Characters of a run's id in the table; the title has the whole id."""
_NOTHING = Text("–")


def result_facts(request: PageRequest, story: TestDetail) -> dict[str, str]:
    """Return the summary of a test: its state, since when, and its reliability."""
    judged = [one for one in story.cells if one.now is not None and one.gone is None]
    gone = [one.gone for one in story.cells if one.gone is not None]
    failing = [one for one in judged if one.now is not None and one.now.outcome in BAD]
    told = {"now": "no result yet", "tone": "warn", "since": "", "flaky": _flaky(story)}
    told["at_least"] = percent(story.flaky.min_failure_rate)
    if failing:
        told |= {"now": f"fails on {len(failing)} of {len(judged)}", "tone": "bad"}
        breaks = [one.broken for one in failing if one.broken is not None]
        first = min((one.first_bad for one in breaks), key=lambda go: go.at)
        told["since"] = f"since {first.version}, {ago(first.at, request.now)}"
    elif judged:
        passing = sum(1 for one in judged if _word(one) == "passed")
        told |= {"now": f"passes on {passing} of {len(judged)}"}
        told["tone"] = "good" if passing == len(judged) else "warn"
        if story.failure is not None:
            failed = story.failure
            told["since"] = f"last failed {ago(failed.at, request.now)}, on {failed.cell}"
    elif gone:
        since = min(gone, key=lambda cell: cell.run)
        told |= {"now": "gone", "since": _gone_since(since)}
    return told


def _gone_since(cell: GridCell) -> str:
    return f"since run {cell.run[:_RUN_SHOWN]}…, {cell.version}, {cell.at:%Y-%m-%d %H:%M}"


def _word(one: CellTestHistory) -> str:
    return one.now.outcome.word if one.now is not None else ""


def _flaky(story: TestDetail) -> str:
    it = story.flaky
    if not it.results:
        return "no result yet"
    if flaky_signal(it) is None:
        results = plural(it.results, "counted result")
        return f"no failure in {results} ({NOT_COUNTED})"
    parts = [
        f"{it.passed_on_retry:,} passed on retry" if it.passed_on_retry else "",
        f"{plural(it.mixed_builds, 'time')} both with one build" if it.mixed_builds else "",
        f"{it.flips:,} flips in {it.chances:,}" if it.flips else "",
    ]
    return f"flaky: {', '.join(part for part in parts if part)}"


def platforms_table(request: PageRequest, story: TestDetail) -> Table:
    """Return the table of platforms with the newest result and the results before it."""
    return Table(
        id="platforms",
        caption="On each platform",
        columns=(
            Column("platform", "Platform"),
            Column("now", "Newest"),
            Column("version", "Version"),
            Column("results", "Results, the newest to the right"),
            Column("passed", "Passed"),
            Column("took_s", "Duration", is_number=True),
            Column("trend_s", "Over time"),
            Column("broken", "Regression range"),
        ),
        rows=[
            Row(
                tuple(_platform(request, story, one)),
                tone="bad"
                if one.gone is None and one.now is not None and one.now.outcome in BAD
                else "",
            )
            for one in story.cells
        ],
        empty="It was collected, and no result has come yet.",
        is_caption_hidden=True,
    )


def _platform(request: PageRequest, story: TestDetail, one: CellTestHistory) -> Iterator[TableCell]:
    now = one.now
    name = f"{urls.test_url(story.test.id)}?{_query(cell=one.cell)}#history"
    yield Text(one.cell, name)
    if one.gone is not None:
        yield _gone_badge(one.gone)
    else:
        yield (
            Badge(now.outcome.word, _result_url(now), note=now.origin)
            if now is not None
            else Badge("")
        )
    note = ago(now.at, request.now) if now is not None else ""
    yield Text(now.version, note=note) if now is not None else _NOTHING
    yield _strip(one)
    yield TestCounts(one.counts)
    took = [go.duration_s if go.outcome in _TIMED else None for go in reversed(one.goes)]
    real = [value for value in took if value is not None]
    yield Span(median(real) if real else None)
    yield _trend(one.cell, took, real)
    yield _turn(one)


def _gone_badge(cell: GridCell) -> Badge:
    href = urls.cell_url(cell.run, cell.name)
    return Badge("gone", href, note=_gone_since(cell))


_TIMED = frozenset({TestOutcome.PASSED, TestOutcome.XPASSED, TestOutcome.XFAILED})
"""Outcomes whose durations are compared; a failed test may end early."""


def _query(**asked: str) -> str:
    return urls.with_query("", **asked).removeprefix("?")


def _result_url(go: CellResult) -> str:
    return urls.result_url(go.run, go.cell, go.test)


def _strip(one: CellTestHistory) -> PictureCell:
    goes = list(reversed(one.goes))
    words = [go.outcome.word for go in goes]
    counted = {word: words.count(word) for word in dict.fromkeys(words)}
    told = ", ".join(term(word).counted(many) for word, many in counted.items())
    tones = [term(word).tone for word in words]
    bad = [1.0 if go.outcome in BAD else 0.0 for go in goes]
    return PictureCell(strip(tones), bad, f"{one.cell}, {plural(len(goes), 'result')}: {told}")


def _trend(cell: str, took: Sequence[float | None], real: Sequence[float]) -> TableCell:
    if len(real) < 2:
        return _NOTHING
    label = f"{cell}: from {duration(min(real))} to {duration(max(real))}"
    picture = sparkline(took, low=0, high=max(real), width=_WIDTH, height=20)
    return PictureCell(picture, list(took), label)


def _turn(one: CellTestHistory) -> TableCell:
    """Return the last good and the first bad version of a failing test, as a link.

    Without a good version, return the first bad one; of a test that does not fail, nothing.
    """
    if one.broken is None:
        return _NOTHING
    good, bad = one.broken.last_good, one.broken.first_bad
    many = one.broken.failures
    note = "1 failure" if many == 1 else f"{many} failures in a row"
    if good is None:
        return Text(f"fails at least since {bad.version}", _result_url(bad), note=note)
    link = urls.compare_url(good.run, bad.run)
    return CellList((Text(f"{good.version} → {bad.version}", link, note=f"{note}; compare"),))


def history_table(story: TestDetail, goes: Sequence[CellResult], *, more: str) -> Table:
    """Return the table of the test's results."""
    tests = {one.id: one for one in (story.test, *story.names)}
    return Table(
        id="history",
        caption="Results, the newest first",
        columns=(
            Column("at", "Launched"),
            Column("outcome", "Outcome"),
            Column("platform", "Platform"),
            Column("version", "Version"),
            Column("took_s", "Duration", is_number=True),
            Column("failure", "Failure"),
            Column("run", "Run"),
        ),
        rows=[Row(tuple(_result(story, go, tests))) for go in goes],
        empty="There are no older results.",
        next=more,
        is_caption_hidden=True,
    )


def _result(story: TestDetail, go: CellResult, tests: dict[int, KnownTest]) -> Iterator[TableCell]:
    yield Moment(go.at)
    word = "running" if go.is_alive and go.outcome is TestOutcome.MISSING else go.outcome.word
    tries = ", ".join(one.word for one in go.earlier)
    yield Badge(word, _result_url(go), note=f"after {tries}" if tries else "")
    yield Text(go.cell, note=go.origin)
    yield Text(go.version)
    yield Span(go.duration_s if go.outcome is not TestOutcome.MISSING else None)
    known = story.signatures.get(go.signature)
    said_so = str(known) if known is not None else go.signature
    was = tests[go.test]
    as_was = f"as {was.nodeid} of job {was.job}" if go.test != story.test.id else ""
    if go.signature:
        kind = known.exception if known is not None else ""
        href = urls.signature_url(go.signature)
        yield Text(said_so, href, note=as_was, short=kind or go.signature)
    else:
        yield Text("–", note=as_was)
    yield Text(go.run, urls.run_url(go.run), short=f"{go.run[:_RUN_SHOWN]}…")


def triage_table(story: TestDetail) -> Table:
    """Return known issues and quarantines of the test's failures."""
    issues = [
        Row(
            (
                Text(one.id, urls.KNOWN_ISSUES),
                Badge("expired" if one.is_over else "active"),
                Text(one.title, one.url if one.url.startswith(("https://", "http://")) else ""),
                Text(one.owner),
                Text(f"{one.expires}"),
            )
        )
        for one in story.issues
    ]
    quarantines = [
        Row(
            (
                Text(one.id, urls.FLAKY),
                Badge("flaky", note=", ".join(one.platforms) or "every platform"),
                Text(one.reason),
                Text(one.owner),
                Text(f"{one.expires:%Y-%m-%d}"),
            )
        )
        for one in story.quarantines
    ]
    return Table(
        id="excuses",
        caption="Known issues and quarantines",
        columns=(
            Column("id", "Id"),
            Column("state", "State"),
            Column("title", "What"),
            Column("owner", "Owner"),
            Column("until", "Until"),
        ),
        rows=[*issues, *quarantines],
        empty="No known issue fits its failures, and it is in no quarantine.",
        is_caption_hidden=True,
    )


def names_table(story: TestDetail) -> Table:
    """Return the table of the test's former names."""
    return Table(
        id="names",
        caption="Older names",
        columns=(Column("name", "Name"), Column("job", "Job")),
        rows=[Row((Text(one.nodeid), Text(one.job))) for one in story.names],
        empty="It has had no other name that a person confirmed.",
        is_caption_hidden=True,
    )


PAGE_SIZE = 50
EACH = 60
"""Number of newest results that are read for each platform."""
HISTORY = 60
_FOUND = (
    Column("test", "Test"),
    Column("newest", "Newest result"),
    Column("platform", "On"),
    Column("version", "Version"),
    Column("at", "When"),
)

router = APIRouter()


@router.get(urls.TESTS)
def search(
    request: PageRequestDep, q: str = "", job: str = "", after: int | None = None
) -> Response:
    """Show the tests whose node ids contain the words."""
    known = products(request)
    product = of_products(request, known)
    stores = request.context.stores
    found = stores.tests.page(
        product=product, job=job or None, contains=q.strip(), limit=PAGE_SIZE, after=after
    )
    last = {go.test: go for go in stores.grids.last([test.id for test in found])}
    gone = stores.grids.gone([(go.test, go.number) for go in last.values()])
    table = Table(
        id="tests",
        caption="Tests",
        columns=_FOUND,
        rows=[_found(request, test, last.get(test.id), gone) for test in found],
        empty="No test's name holds this." if q or job else "No test has been reported yet.",
        command="" if product else "seatrial init && seatrial run seatrial.yaml",
        next=request.here(after=str(found.next)) if found.next is not None else "",
        is_caption_hidden=True,
    )
    facts = {
        "product": product,
        "products": known,
        "jobs": stores.grids.jobs(product),
        "q": q,
        "job": job,
    }
    page = Page(
        template="tests.html.j2", title="Tests", tables=(table,), facts=facts, section=urls.GRID
    )
    return request.answer(page)


@router.get(urls.TESTS + "/{test_id}")
def show_test(request: PageRequestDep, test_id: int, cell: str = "", before: str = "") -> Response:
    """Show one test, found by any of its names."""
    story = follow_test(request.context.stores, test_id, each=EACH, at=request.now)
    if story is None:
        raise PageMissingError(f"there is no test {test_id}; {urls.TESTS} searches for one")
    shown, older = _page(_history(request, story, cell, before))
    more = request.here(before=older) if older else ""
    files = _newest_files(request, story)
    tables = (
        platforms_table(request, story),
        history_table(story, shown, more=more),
        triage_table(story),
        names_table(story),
    )
    return request.answer(
        Page(
            template="test.html.j2",
            title=short_name(story.test.nodeid),
            tables=tables,
            facts={
                "story": story,
                "told": result_facts(request, story),
                "files": files,
                "cell": cell,
                "before": before,
            },
            data={
                **_data(story),
                "newest_artifacts": [name for _, names in files for name in names],
            },
            section=urls.GRID,
        )
    )


def _newest_files(
    request: PageRequest, story: TestDetail
) -> Sequence[tuple[CellResult, tuple[str, ...]]]:
    """Return the results of the test's newest run that have artifacts, with their names."""
    goes = [go for one in story.cells for go in one.goes]
    newest = max((go.run for go in goes), default="")
    goes = [go for go in goes if go.run == newest]
    left = request.context.stores.results.artifact_names([go.number for go in goes])
    tests = {one.id: one for one in (story.test, *story.names)}
    found = []
    for go in goes:
        test = tests[go.test]
        found.append((go, artifacts_of_test(left.get(go.number, ()), test.job, test.nodeid)))
    return [(go, names) for go, names in found if names]


def _history(
    request: PageRequest, story: TestDetail, cell: str, before: str
) -> Sequence[CellResult]:
    """Return results, newest first, and one more than a page shows if there are older ones."""
    if not before and not cell:
        goes = (go for one in story.cells for go in one.goes)
        return sorted(goes, key=lambda go: go.run, reverse=True)
    tests = [story.test.id, *(one.id for one in story.names)]
    return request.context.stores.grids.strips(tests, each=HISTORY + 1, cell=cell, before=before)


def _page(goes: Sequence[CellResult]) -> tuple[Sequence[CellResult], str]:
    """Return a page of results and the run before which the next page begins, or empty.

    The results of one run are not split between pages, unless they fill a whole page.
    """
    if len(goes) <= HISTORY:
        return goes, ""
    cut_off = goes[HISTORY].run
    shown = [go for go in goes[:HISTORY] if go.run != cut_off] or goes[:HISTORY]
    return shown, shown[-1].run


def _found(
    request: PageRequest,
    test: KnownTest,
    last: CellResult | None,
    gone: Mapping[tuple[int, str], GridCell],
) -> Row:
    if last is None:
        nothing = Text("–")
        return Row((name_cell(test), Badge(""), nothing, nothing, Moment(None)))
    since = gone.get((test.id, last.cell))
    newest = Badge(last.outcome.word, urls.cell_url(last.run, last.cell))
    return Row(
        (
            name_cell(test),
            newest if since is None else _gone_badge(since),
            Text(last.cell),
            Text(last.version),
            Moment(last.at, request.now),
        )
    )


def _data(story: TestDetail) -> Mapping[str, object]:
    test = story.test
    return {
        "test": {
            "id": test.id,
            "product": test.product,
            "job": test.job,
            "nodeid": test.nodeid,
            "older_names": [one.nodeid for one in story.names],
        },
        "flaky": {
            "passed_on_retry": story.flaky.passed_on_retry,
            "mixed_builds": story.flaky.mixed_builds,
            "flips": story.flaky.flips,
            "chances": story.flaky.chances,
            "results": story.flaky.results,
            "failures": story.flaky.failures,
            "min_failure_rate": story.flaky.min_failure_rate,
        },
        "newest_failure": story.message or None,
    }
