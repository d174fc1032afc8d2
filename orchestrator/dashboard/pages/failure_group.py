"""One kind of failure: what was said, how it varies, where it was seen, who answers for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.application.show_failure_group import LOOKED, ShownKind, Spot, show_kind
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Asked, AskedDep, Page, PageMissingError
from orchestrator.dashboard.table import Badge, Column, Moment, Names, Number, Row, Table, Text
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.signature import Signature

PAGE_SIZE = 100
VARIANTS_SHOWN = 20
TRACE_SHOWN = 20_000
"""Characters at the end of a traceback that the page shows: what was raised stands last."""
ISSUE_DAYS = 30
"""So long a known issue lasts, unless somebody says otherwise."""
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
_CLASSES = {
    FailureClass.PRODUCT: "the product",
    FailureClass.TEST: "the test",
    FailureClass.INFRA: "the machine or the network",
    FailureClass.ENVIRONMENT: "what is installed on the machine",
    FailureClass.UNKNOWN: "not clear",
}

router = APIRouter()


@router.get(urls.FAILURES + "/{signature}")
def show_failure(
    asked: AskedDep, signature: str, after: Annotated[int, Query(ge=0, le=LOOKED)] = 0
) -> Response:
    """All of it."""
    shown = show_kind(asked.context, signature)
    if shown is None:
        raise PageMissingError(f"there is no signature {signature!r}; /failures lists them")
    tables = (_spots(asked, shown, after), _variants(shown), _alike(shown))
    return asked.answer(
        Page(
            template="failure.html.j2",
            title=said_of(shown.signature),
            tables=tables,
            facts={
                "shown": shown,
                "kind": shown.kind,
                "whose": _CLASSES[shown.signature.kind],
                "standing": Badge(shown.kind.standing if shown.kind else "ended"),
                "trace": _end(shown.traceback),
                "cut_trace": max(len(shown.traceback) - TRACE_SHOWN, 0),
                "newest_url": _newest_url(shown),
                "issue_form": _issue_form(asked, shown),
                "parts": {"spots": tables[0], "variants": tables[1], "alike": tables[2]},
                "first": Moment(shown.kind.first_seen if shown.kind else None),
                "last": Moment(shown.kind.last_seen if shown.kind else None),
                "platforms": Names(shown.kind.platforms if shown.kind else (), shown=8),
                "versions": Names(shown.kind.versions if shown.kind else (), shown=6),
                "hidden_variants": max(len(shown.variants) - VARIANTS_SHOWN, 0),
                "looked": LOOKED,
            },
            data=_told(shown),
            section=urls.FAILURES,
        )
    )


def said_of(signature: Signature) -> str:
    """The exception and its words."""
    words = ": ".join(filter(None, (signature.exception, signature.message)))
    return words or "Failure without words"


def _end(text: str) -> str:
    return text[-TRACE_SHOWN:]


def _newest_url(shown: ShownKind) -> str:
    return urls.cell_url(shown.newest.run_id, shown.newest.name) if shown.newest else ""


def _issue_form(asked: Asked, shown: ShownKind) -> str:
    """The form for a known issue, filled in as far as the failures say."""
    kind = shown.kind
    if kind is None or not asked.viewer.may("gate"):
        return ""
    until = (asked.now + timedelta(days=ISSUE_DAYS)).date()
    given = {
        "product": shown.product,
        "signature": shown.signature.id,
        "title": said_of(shown.signature)[:200],
        "platforms": ", ".join(kind.platforms),
        "jobs": ", ".join(kind.jobs),
        "expires": until.isoformat(),
        "max_failures": str(shown.most_in_a_run),
    }
    return f"{urls.with_query(urls.KNOWN_ISSUES, **given)}#add"


def _told(shown: ShownKind) -> Mapping[str, object]:
    signature = shown.signature
    return {
        "signature": signature.id,
        "class": signature.kind,
        "exception": signature.exception,
        "frame": signature.frame,
        "message": signature.message,
        "standing": shown.kind.standing if shown.kind else None,
        "owners": list(shown.kind.answering.owners) if shown.kind else [],
        "traceback": shown.traceback,
    }


def _spots(asked: Asked, shown: ShownKind, after: int) -> Table:
    following = after + PAGE_SIZE
    return Table(
        id="spots",
        caption="Where it was seen, the newest first",
        columns=_SPOTS,
        rows=[_spot(asked, shown, one) for one in shown.spots[after:following]],
        empty="No stored result has this signature any more.",
        next=asked.here(after=str(following)) if following < len(shown.spots) else "",
        total=len(shown.spots),
        is_caption_hidden=True,
    )


def _spot(asked: Asked, shown: ShownKind, spot: Spot) -> Row:
    test, cell = shown.tests[spot.test_id], spot.cell
    return Row(
        (
            Text(test.nodeid, urls.test_url(test.id), note=test.job),
            Text(cell.name, urls.cell_url(cell.run_id, cell.name)),
            Text(cell.version),
            Number(spot.count),
            Text(cell.run_id, urls.run_url(cell.run_id), is_code=True),
            Moment(cell.at, asked.now),
        )
    )


def _variants(shown: ShownKind) -> Table:
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


def _alike(shown: ShownKind) -> Table:
    rows = [
        Row(
            (
                Text(said_of(one), urls.signature_url(one.id)),
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
