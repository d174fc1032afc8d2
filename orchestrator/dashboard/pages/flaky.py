"""The page of flaky tests with their evidence, and of quarantined tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from orchestrator.application.gate_policies import longest_of
from orchestrator.application.list_flaky import (
    WEIGHED,
    FlakyReview,
    FlakyTest,
    ListedQuarantine,
    list_flaky,
)
from orchestrator.application.quarantine import NewQuarantine, add_quarantine, end_quarantine
from orchestrator.dashboard import urls
from orchestrator.dashboard.forms import Form, form_of
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_product,
    product_of,
    products,
)
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Act,
    Badge,
    CellList,
    Column,
    Moment,
    NameList,
    Number,
    Row,
    Tab,
    Table,
    TableCell,
    Text,
    named_test,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.flaky import (
    NOT_COUNTED,
    FailureOrigin,
    FlakyEvidence,
    FlakySignal,
    ResultPair,
)
from orchestrator.domain.quarantine import MOST_PASSES, QuarantineState
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term

WINDOWS = (10, 20, 50)
_RUNS = 50
QUARANTINES_SHOWN = 100
_MOST_DAYS = 36_500
"""Maximum days that the form accepts; the operation checks the real limit."""
SOON = timedelta(days=3)
_FIELDS = ("product", "nodeid", "owner", "reason", "days", "platforms", "returns_after")
_TESTS = (
    Column("test", "Test"),
    Column("likely_percent", "At least", is_number=True),
    Column("how", "Detection"),
    Column("figures", "Evidence"),
    Column("platforms", "Platforms"),
    Column("evidence", "Newest evidence"),
    Column("last_seen", "Last seen"),
    Column("quarantine", "Quarantine"),
)
_DATA = (
    Column("whose", "Ownership"),
    Column("passed_on_retry", "Passed on retry", is_number=True),
    Column("failures", "Failed", is_number=True),
    Column("judged", "Evaluated results", is_number=True),
    Column("flips", "Flips", is_number=True),
    Column("test_id", "Number", is_number=True),
)
"""Columns of the data formats for values that the page shows as text."""
_QUARANTINES = (
    Column("test", "Test"),
    Column("state", "State"),
    Column("platforms", "Platforms"),
    Column("reason", "Why"),
    Column("owner", "Owner"),
    Column("failures_since", "Failures since", is_number=True),
    Column("passes", "Passes in a row"),
    Column("expires", "Until"),
)
_QUARANTINE_DATA = (
    Column("quarantine", "Quarantine"),
    Column("passes_in_a_row", "Passes", is_number=True),
    Column("returns_after", "Returns after", is_number=True),
)
_END = Column("end", "End", is_title_hidden=True)
_WHOSE = {
    FailureOrigin.INFRA: "the machine's",
    FailureOrigin.TEST: "the test's or the product's",
    FailureOrigin.BOTH: "the machine's, and the test's",
    FailureOrigin.UNKNOWN: "not known whose",
}

router = APIRouter()


@router.get(urls.FLAKY)
def show_flaky(
    request: PageRequestDep, runs: Annotated[int, Query(ge=1, le=max(WINDOWS))] = _RUNS
) -> Response:
    """Show the flaky tests of a product."""
    given = {name: request.query.get(name, "") for name in _FIELDS}
    given["days"] = given["days"] or "14"
    given["returns_after"] = given["returns_after"] or "20"
    return _page(request, Form(given), runs)


@router.post(urls.FLAKY)
def quarantine(
    request: PageRequestDep,
    viewer: Annotated[Viewer, needs(Scope.GATE)],
    form: Annotated[Form, Depends(form_of(_FIELDS))],
) -> Response:
    """Put a test in quarantine; if that is refused, show the form again with its errors."""
    new = NewQuarantine(
        product=form.filled("product"),
        nodeid=form.filled("nodeid", longest=2_000),
        reason=form.filled("reason"),
        owner=form.filled("owner"),
        days=form.number("days", least=1, most=_MOST_DAYS),
        platforms=form.names("platforms"),
        returns_after=form.number("returns_after", least=1, most=MOST_PASSES),
    )
    if not form.is_refused:
        try:
            added = add_quarantine(request.context, new, author=viewer.person)
        except InvalidDocumentError as error:
            form.refuse(error)
        else:
            return request.go(f"{urls.with_query(urls.FLAKY, product=added.product)}#{added.id}")
    return _page(request, form, _RUNS)


@router.post(urls.FLAKY + "/{quarantine}/end")
def end_one(
    request: PageRequestDep, viewer: Annotated[Viewer, needs(Scope.GATE)], quarantine: str
) -> Response:
    """End a quarantine now; idempotent."""
    ended = end_quarantine(request.context, quarantine, by=viewer.name)
    if ended is None:
        raise PageMissingError(f"there is no quarantine {quarantine!r}; /flaky lists them")
    return request.go(f"{urls.with_query(urls.FLAKY, product=ended.product)}#{ended.id}")


def _page(request: PageRequest, form: Form, runs: int) -> Response:
    known = products(request)
    product = product_of(request, form, known)
    review = list_flaky(request.context, product, runs=runs)
    form.values = {**form.values, "product": form.value("product") or product}
    how, whose = request.query.get("how", ""), request.query.get("whose", "")
    tests = [one for one in review.tests if how in ("", one.how) and whose in ("", one.whose)]
    tables = (_tests(request, review, tests), _quarantines(request, product, review.quarantines))
    return request.answer(
        Page(
            template="flaky.html.j2",
            title="Flaky tests",
            tables=tables,
            facts={
                "product": product,
                "products": known,
                "form": form,
                "is_open": form.is_refused or bool(form.value("nodeid")),
                "runs": runs,
                "windows": WINDOWS,
                "whose": whose,
                "all_whose": [(one, _WHOSE[one]) for one in FailureOrigin],
                "tabs": _tabs(request, review.tests, how),
                "looked": plural(review.runs, "run"),
                "unweighed": max(review.suspects - WEIGHED, 0),
                "longest": longest_of(request.context, product).days,
                "most": MOST_PASSES,
                "parts": {"tests": tables[0], "quarantines": tables[1]},
            },
            data={"product": product, "runs": review.runs, "suspects": review.suspects},
            section=urls.FLAKY,
        ),
        status=422 if form.is_refused else 200,
    )


def _tabs(request: PageRequest, tests: Sequence[FlakyTest], how: str) -> list[Tab]:
    counts = Counter(one.how for one in tests)
    tabs = [Tab("All", len(tests), request.here(how=""), not how)]
    return tabs + [
        Tab(term(one).word, counts[one], request.here(how=one), how == one) for one in FlakySignal
    ]


def _tests(request: PageRequest, review: FlakyReview, tests: Sequence[FlakyTest]) -> Table:
    filtered = len(tests) < len(review.tests)
    return Table(
        id="flaky",
        caption="Flaky tests, most likely to fail first",
        columns=(*_TESTS, *_DATA) if _is_data(request) else _TESTS,
        rows=[_test(request, one) for one in tests],
        empty=(
            "No unsteady test fits: take a filter away."
            if filtered
            else f"No test both failed and passed in the newest {plural(review.runs, 'run')}."
        ),
        total=len(tests),
        is_caption_hidden=True,
    )


def _is_data(request: PageRequest) -> bool:
    return request.wanted in (Format.JSON, Format.CSV)


def _test(request: PageRequest, one: FlakyTest) -> Row:
    evidence = one.evidence
    cells: list[TableCell] = [
        named_test(one.test.nodeid, one.test.job, urls.test_url(one.test.id)),
        Number(round(100 * evidence.min_failure_rate, 1), "%"),
        Badge(one.how, _failure_url(one), note=_WHOSE[one.whose]),
        _figures(evidence),
        NameList(one.platforms),
        _pair(one.pair),
        Moment(one.last_seen, request.now),
        _quarantined_text(request, one),
    ]
    if _is_data(request):
        figures = (evidence.passed_on_retry, evidence.failures, evidence.results, evidence.flips)
        cells += [Text(one.whose), *map(Number, figures), Number(one.test.id)]
    return Row(cells, id=f"test-{one.test.id}")


def _figures(evidence: FlakyEvidence) -> Text:
    retried = f"{evidence.passed_on_retry:,} on retry, " if evidence.passed_on_retry else ""
    flips = plural(evidence.flips, "change") + " between passing and failing"
    note = f"{flips}; {NOT_COUNTED}"
    return Text(f"{retried}{evidence.failures:,} failed of {evidence.results:,}", note=note)


def _failure_url(one: FlakyTest) -> str:
    return urls.signature_url(one.signatures[0]) if one.signatures else ""


def _pair(pair: ResultPair | None) -> CellList:
    if pair is None:
        return CellList(())
    bad, good = pair.bad, pair.good
    at_bad = urls.cell_url(bad.go.run, bad.go.platform)
    if bad is good:
        return CellList((Text(f"{bad.go.platform}: failed, then passed", at_bad),))
    at_good = urls.cell_url(good.go.run, good.go.platform)
    cells = [
        Text(f"failed {bad.go.version}", at_bad),
        Text(f"passed {good.go.version}", at_good, note=good.go.platform),
    ]
    if bad.go.run != good.go.run:
        cells.append(Text("compare", urls.compare_url(good.go.run, bad.go.run)))
    return CellList(cells)


def _quarantined_text(request: PageRequest, one: FlakyTest) -> TableCell:
    if one.quarantines:
        first = one.quarantines[0]
        return Text(first.id, f"#{first.id}", note=f"{first.owner}, until {first.expires:%Y-%m-%d}")
    if not request.viewer.may(Scope.GATE):
        return Text("–")
    given = {
        "product": one.test.product,
        "nodeid": one.test.nodeid,
        "platforms": ", ".join(one.platforms),
    }
    return Text("quarantine", f"{urls.with_query(urls.FLAKY, **given)}#quarantine")


def _quarantines(
    request: PageRequest, product: str, quarantines: Sequence[ListedQuarantine]
) -> Table:
    ends = request.wanted is Format.HTML and request.viewer.may(Scope.GATE)
    more = (_END,) if ends else _QUARANTINE_DATA if _is_data(request) else ()
    return Table(
        id="quarantines",
        caption="Quarantines, active ones first",
        columns=(*_QUARANTINES, *more),
        rows=[_quarantine(request, one, ends=ends) for one in quarantines[:QUARANTINES_SHOWN]],
        empty=f"No test{of_product(product)} is in quarantine.",
        total=len(quarantines),
        is_caption_hidden=True,
    )


def _quarantine(request: PageRequest, shown: ListedQuarantine, *, ends: bool) -> Row:
    one = shown.quarantine
    is_active = shown.state is QuarantineState.ACTIVE
    is_near = is_active and one.expires - request.now <= SOON
    cells: list[TableCell] = [
        Text(one.nodeid, urls.test_url(shown.test_id) if shown.test_id else "", note=one.id),
        Badge(shown.state, note=one.ended_by),
        NameList(one.platforms) if one.platforms else Text("all"),
        Text(one.reason),
        Text(one.owner),
        Number(shown.failures),
        Text(f"{shown.passes or 0:,} of {one.returns_after:,}" if is_active else "–"),
        Text(f"{one.expires:%Y-%m-%d}", note=_left(request, shown)),
    ]
    if ends:
        act = Act("End", urls.end_quarantine_url(one.id), request.viewer.csrf(), one.id)
        cells.append(act if is_active else Text(""))
    elif _is_data(request):
        cells += [Text(one.id), Number(shown.passes), Number(one.returns_after)]
    return Row(cells, id=one.id, tone="warn" if is_near else "")


def _left(request: PageRequest, shown: ListedQuarantine) -> str:
    if shown.state is not QuarantineState.ACTIVE:
        return ""
    days = (shown.quarantine.expires - request.now).days
    words = f"{plural(days, 'day')} left" if days else "less than a day left"
    return f"only {words}" if shown.quarantine.expires - request.now <= SOON else words
