"""Failure groups of a product's newest runs: the list, new ones first, and the page of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.application.failure_groups import (
    LOOKED,
    FailureGroupDetail,
    FailureGroupFilter,
    FailureGroupPage,
    FailureSite,
    ListedFailureGroup,
    list_failure_groups,
    most_often,
    names_of,
    show_failure_group,
    with_similar,
)
from orchestrator.application.triage_failures import NEW_FOR, TriageStatus
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_products,
    products,
)
from orchestrator.dashboard.table import (
    Badge,
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
from orchestrator.domain.failure_signature import Signature
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.node_ids import KnownTest
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term

PAGE_SIZE = 50
WINDOWS = (10, 20, 50, 100)
"""Choices for the number of newest runs."""
_RUNS = 20
_COLUMNS = (
    Column("failure", "Failure"),
    Column("status", "Status"),
    Column("results", "Results", is_number=True),
    Column("tests", "Tests", is_number=True),
    Column("platforms", "Platforms"),
    Column("versions", "Versions"),
    Column("first_seen", "First seen"),
    Column("last_seen", "Last seen"),
    Column("owners", "Owner"),
    Column("alike", "Similar failures"),
)
_DATA = (
    Column("signature", "Signature"),
    Column("frame", "Frame"),
    Column("class", "Class"),
    Column("test", "Test with most failures"),
)
"""Columns of the data formats for values that the page shows in the failure's cell."""
_HINTED = (FailureClass.INFRA, FailureClass.ENVIRONMENT, FailureClass.TEST)
_LOUD = {TriageStatus.NEW: "bad", TriageStatus.LAPSED: "warn"}

router = APIRouter()


@router.get(urls.FAILURES)
def show_failures(
    request: PageRequestDep,
    runs: Annotated[int, Query(ge=1, le=max(WINDOWS))] = _RUNS,
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Show a page of failure groups."""
    known = products(request)
    product = of_products(request, known)
    question = FailureGroupFilter(
        product=product,
        runs=runs,
        platform=request.query.get("platform", ""),
        version=request.query.get("version", ""),
        text=request.query.get("q", ""),
    )
    review = list_failure_groups(request.context, question)
    status = request.query.get("status", "")
    kinds = [kind for kind in review.kinds if status in ("", kind.status)]
    table = _table(request, review, kinds, after)
    facts = {
        "product": product,
        "products": known,
        "question": question,
        "platforms": _with(review.platforms, question.platform),
        "versions": _with(review.versions, question.version),
        "windows": WINDOWS,
        "tabs": _tabs(request, review.kinds, status),
        "looked": plural(review.runs, "run"),
        "new_days": NEW_FOR.days,
        "is_first": not after,
    }
    return request.answer(
        Page(
            template="failures.html.j2",
            title="Failures",
            tables=(table,),
            facts=facts,
            data={"product": product, "runs": review.runs},
            section=urls.FAILURES,
        )
    )


def _with(names: Sequence[str], chosen: str) -> Sequence[str]:
    """Return the options, with the chosen one even if no row has it."""
    return names if not chosen or chosen in names else (chosen, *names)


def _tabs(request: PageRequest, kinds: Sequence[ListedFailureGroup], status: str) -> list[Tab]:
    counts = Counter(kind.status for kind in kinds)
    tabs = [Tab("All", len(kinds), request.here(status="", after=""), not status)]
    for one in TriageStatus:
        shown = term(one)
        tone = shown.tone if one in _LOUD and counts[one] else ""
        href = request.here(status=one, after="")
        tabs.append(Tab(shown.word, counts[one], href, status == one, tone))
    return tabs


def _table(
    request: PageRequest,
    review: FailureGroupPage,
    kinds: Sequence[ListedFailureGroup],
    after: int,
) -> Table:
    shown = with_similar(request.context, kinds[after : after + PAGE_SIZE])
    names = names_of(request.context, shown)
    following = after + PAGE_SIZE
    is_asked = any(request.query.get(name) for name in ("platform", "version", "q", "status"))
    return Table(
        id="failures",
        caption="Failure groups, new ones first",
        columns=(*_COLUMNS, *_DATA) if _is_data(request) else _COLUMNS,
        rows=[_row(request, kind, names) for kind in shown],
        empty=_empty(review, is_filtered=is_asked),
        command="" if review.runs else "seatrial init && seatrial run seatrial.yaml",
        next=request.here(after=str(following)) if following < len(kinds) else "",
        total=len(kinds),
        is_caption_hidden=True,
    )


def _empty(review: FailureGroupPage, *, is_filtered: bool) -> str:
    if not review.runs:
        return "No run has been launched yet."
    if is_filtered:
        return "No failure fits: take a filter away, or look at more runs."
    return f"Nothing failed in the newest {plural(review.runs, 'run')}."


def _is_data(request: PageRequest) -> bool:
    return request.wanted in (Format.JSON, Format.CSV)


def _row(request: PageRequest, kind: ListedFailureGroup, names: Mapping[int, KnownTest]) -> Row:
    signature = kind.signature
    test = names.get(most_often(kind)) if kind.tests else None
    cells: list[TableCell] = [
        Text(_sentence(kind), urls.signature_url(signature.id), note=_beside(kind, test)),
        _badge(kind),
        Number(kind.count),
        Number(len(kind.tests)),
        NameList(kind.platforms),
        NameList(kind.versions, shown=1),
        Moment(kind.first_seen, request.now),
        Moment(kind.last_seen, request.now),
        NameList(kind.answering.owners) if kind.answering.owners else Text("no owner"),
        _alike(request, kind),
    ]
    if _is_data(request):
        words = (signature.id, signature.frame, signature.kind, test.nodeid if test else "")
        cells += [Text(word) for word in words]
    return Row(cells, id=signature.id, tone=_LOUD.get(kind.status, ""))


def _beside(kind: ListedFailureGroup, test: KnownTest | None) -> str:
    """Return the location, the probable cause and one test of a failure group as one line."""
    signature = kind.signature
    name = test.nodeid.rpartition("::")[2] if test else ""
    more = f" and {len(kind.tests) - 1} more" if len(kind.tests) > 1 else ""
    told = (
        f"at {signature.frame}" if signature.frame else "",
        f"probably {signature.kind.words}" if signature.kind in _HINTED else "",
        f"in {name}{more}" if name else "",
    )
    return " · ".join(filter(None, told))


def _sentence(kind: ListedFailureGroup) -> str:
    signature = kind.signature
    words = f"{signature.exception}: {signature.message}" if signature.message else ""
    return words.removeprefix(": ") or signature.exception or "failure without words"


def _badge(kind: ListedFailureGroup) -> Badge:
    answering = kind.answering
    now = [one.id for one in answering.issues] + [one.id for one in answering.quarantines]
    ids = ", ".join((now or [one.id for one in answering.over])[:3])
    is_part = 0 < answering.tolerated < kind.count
    note = f"{ids}: {answering.tolerated} of {kind.count}" if is_part else ids
    return Badge(kind.status, note=note)


def _alike(request: PageRequest, kind: ListedFailureGroup) -> TableCell:
    if _is_data(request):
        return NameList(kind.similar)
    if not kind.similar:
        return Text("")
    return Text(
        f"{len(kind.similar)} alike", f"{urls.signature_url(kind.signature.id)}#alike-title"
    )


RESULTS_PER_PAGE = 100
VARIANTS_SHOWN = 20
TRACE_SHOWN = 20_000
"""Maximum characters of a traceback on the page; its end is kept, where the exception is."""
ISSUE_DAYS = 30
"""Default days until a known issue expires."""
_VARIANTS = (
    Column("message", "Message"),
    Column("results", "Results", is_number=True),
    Column("newest", "Newest in"),
    Column("seen", "Seen"),
)
_SPOTS = (
    Column("test", "Test"),
    Column("cell", "Platform"),
    Column("version", "Version"),
    Column("results", "Results", is_number=True),
    Column("run", "Newest run"),
    Column("seen", "Seen"),
)
_ALIKE = (Column("failure", "Failure"), Column("frame", "Frame"), Column("signature", "Signature"))


@router.get(urls.FAILURES + "/{signature}")
def show_failure(
    request: PageRequestDep, signature: str, after: Annotated[int, Query(ge=0, le=LOOKED)] = 0
) -> Response:
    """Show one failure group in detail."""
    shown = show_failure_group(request.context, signature)
    if shown is None:
        raise PageMissingError(f"there is no signature {signature!r}; /failures lists them")
    tables = (_spots(request, shown, after), _variants(shown), _similar_groups(shown))
    return request.answer(
        Page(
            template="failure.html.j2",
            title=title_of(shown.signature),
            tables=tables,
            facts={
                "shown": shown,
                "kind": shown.kind,
                "cause": shown.signature.kind.words,
                "status": Badge(shown.kind.status if shown.kind else "ended"),
                "trace": shown.traceback[-TRACE_SHOWN:],
                "cut_trace": max(len(shown.traceback) - TRACE_SHOWN, 0),
                "newest_url": _newest_url(shown),
                "issue_form": _issue_form(request, shown),
                "parts": {"spots": tables[0], "variants": tables[1], "alike": tables[2]},
                "first": Moment(shown.kind.first_seen if shown.kind else None),
                "last": Moment(shown.kind.last_seen if shown.kind else None),
                "platforms": NameList(shown.kind.platforms if shown.kind else (), shown=8),
                "versions": NameList(shown.kind.versions if shown.kind else (), shown=6),
                "hidden_variants": max(len(shown.variants) - VARIANTS_SHOWN, 0),
                "looked": LOOKED,
            },
            data=_document(shown),
            section=urls.FAILURES,
        )
    )


def title_of(signature: Signature) -> str:
    """Return a signature's exception and message."""
    words = ": ".join(filter(None, (signature.exception, signature.message)))
    return words or "Failure without words"


def _newest_url(shown: FailureGroupDetail) -> str:
    return urls.cell_url(shown.newest.run_id, shown.newest.name) if shown.newest else ""


def _issue_form(request: PageRequest, shown: FailureGroupDetail) -> str:
    """Return the form for a known issue, filled in from the failures."""
    kind = shown.kind
    if kind is None or not request.viewer.may("gate"):
        return ""
    until = (request.now + timedelta(days=ISSUE_DAYS)).date()
    given = {
        "product": shown.product,
        "signature": shown.signature.id,
        "title": title_of(shown.signature)[:200],
        "platforms": ", ".join(kind.platforms),
        "jobs": ", ".join(kind.jobs),
        "expires": until.isoformat(),
        "max_failures": str(shown.most_in_a_run),
    }
    return f"{urls.with_query(urls.KNOWN_ISSUES, **given)}#add"


def _document(shown: FailureGroupDetail) -> Mapping[str, object]:
    signature = shown.signature
    return {
        "signature": signature.id,
        "class": signature.kind,
        "exception": signature.exception,
        "frame": signature.frame,
        "message": signature.message,
        "status": shown.kind.status if shown.kind else None,
        "owners": list(shown.kind.answering.owners) if shown.kind else [],
        "traceback": shown.traceback,
    }


def _spots(request: PageRequest, shown: FailureGroupDetail, after: int) -> Table:
    following = after + RESULTS_PER_PAGE
    return Table(
        id="spots",
        caption="Where it was seen, the newest first",
        columns=_SPOTS,
        rows=[_spot(request, shown, one) for one in shown.spots[after:following]],
        empty="No stored result has this signature any more.",
        next=request.here(after=str(following)) if following < len(shown.spots) else "",
        total=len(shown.spots),
        is_caption_hidden=True,
    )


def _spot(request: PageRequest, shown: FailureGroupDetail, spot: FailureSite) -> Row:
    test, cell = shown.tests[spot.test_id], spot.cell
    return Row(
        (
            named_test(test.nodeid, test.job, urls.test_url(test.id)),
            Text(cell.name, urls.cell_url(cell.run_id, cell.name)),
            Text(cell.version),
            Number(spot.count),
            Text(cell.run_id, urls.run_url(cell.run_id), is_code=True),
            Moment(cell.at, request.now),
        )
    )


def _variants(shown: FailureGroupDetail) -> Table:
    rows = []
    for variant in shown.variants[:VARIANTS_SHOWN]:
        cell = shown.cells[variant.newest.cell]
        place = Text(cell.name, urls.cell_url(cell.run_id, cell.name))
        rows.append(Row((Text(variant.message), Number(variant.count), place, Moment(cell.at))))
    return Table(
        id="variants",
        caption="Message variants, most frequent first",
        columns=_VARIANTS,
        rows=rows,
        empty="Nothing is stored of what it said.",
        total=len(shown.variants),
        is_caption_hidden=True,
    )


def _similar_groups(shown: FailureGroupDetail) -> Table:
    rows = [
        Row(
            (
                Text(title_of(one), urls.signature_url(one.id)),
                Text(one.frame or "–", is_code=True),
                Text(one.id, is_code=True),
            )
        )
        for one in shown.alike
    ]
    return Table(
        id="alike",
        caption="Possible duplicates",
        columns=_ALIKE,
        rows=rows,
        empty="No other signature of this exception says nearly the same.",
        is_caption_hidden=True,
    )
