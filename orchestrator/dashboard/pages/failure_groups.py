"""Kinds of failures of a product's newest runs, what is new first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.application.list_failure_groups import (
    Kind,
    KindQuestion,
    KindReview,
    most_often,
    names_of,
    review_kinds,
    with_similar,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.products import of_products, products
from orchestrator.dashboard.responses import Asked, AskedDep, Format, Page
from orchestrator.dashboard.table import (
    Badge,
    Cell,
    Column,
    Moment,
    Names,
    Number,
    Row,
    Table,
    Text,
)
from orchestrator.domain.alias import KnownTest
from orchestrator.domain.failure_triage import NEW_FOR, Standing
from orchestrator.domain.failures import FailureClass
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term

PAGE_SIZE = 50
WINDOWS = (10, 20, 50, 100)
"""So many newest runs can be asked for."""
_RUNS = 20
_COLUMNS = (
    Column("failure", "Failure"),
    Column("standing", "Status"),
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
    Column("test", "Most affected test"),
)
"""What a page says beside the failure, as columns for programs."""
_HINTS = {
    FailureClass.INFRA: "probably the machine",
    FailureClass.ENVIRONMENT: "probably what is installed",
    FailureClass.TEST: "probably the test",
}
_LOUD = {Standing.NEW: "bad", Standing.LAPSED: "warn"}

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Tab:
    """A part of a list."""

    title: str
    many: int
    href: str
    is_now: bool
    tone: str = ""


@router.get(urls.FAILURES)
def show_failures(
    asked: AskedDep,
    runs: Annotated[int, Query(ge=1, le=max(WINDOWS))] = _RUNS,
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """A page of them."""
    known = products(asked)
    product = of_products(asked, known)
    question = KindQuestion(
        product=product,
        runs=runs,
        platform=asked.query.get("platform", ""),
        version=asked.query.get("version", ""),
        text=asked.query.get("q", ""),
    )
    review = review_kinds(asked.context, question)
    standing = asked.query.get("standing", "")
    kinds = [kind for kind in review.kinds if standing in ("", kind.standing)]
    table = _table(asked, review, kinds, after)
    facts = {
        "product": product,
        "products": known,
        "question": question,
        "platforms": _with(review.platforms, question.platform),
        "versions": _with(review.versions, question.version),
        "windows": WINDOWS,
        "tabs": _tabs(asked, review.kinds, standing),
        "looked": plural(review.runs, "run"),
        "new_days": NEW_FOR.days,
        "is_first": not after,
    }
    return asked.answer(
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
    """What can be chosen, and what is, even where there is none of it."""
    return names if not chosen or chosen in names else (chosen, *names)


def _tabs(asked: Asked, kinds: Sequence[Kind], standing: str) -> list[Tab]:
    counts = Counter(kind.standing for kind in kinds)
    tabs = [Tab("All", len(kinds), asked.here(standing="", after=""), not standing)]
    for one in Standing:
        shown = term(one)
        tone = shown.tone if one in _LOUD and counts[one] else ""
        href = asked.here(standing=one, after="")
        tabs.append(Tab(shown.word, counts[one], href, standing == one, tone))
    return tabs


def _table(asked: Asked, review: KindReview, kinds: Sequence[Kind], after: int) -> Table:
    shown = with_similar(asked.context, kinds[after : after + PAGE_SIZE])
    names = names_of(asked.context, shown)
    following = after + PAGE_SIZE
    is_asked = any(asked.query.get(name) for name in ("platform", "version", "q", "standing"))
    return Table(
        id="failures",
        caption="Failure groups, new ones first",
        columns=(*_COLUMNS, *_DATA) if _is_data(asked) else _COLUMNS,
        rows=[_row(asked, kind, names) for kind in shown],
        empty=_empty(review, is_filtered=is_asked),
        command="" if review.runs else "seatrial run matrices/local.yaml",
        next=asked.here(after=str(following)) if following < len(kinds) else "",
        total=len(kinds),
        is_caption_hidden=True,
    )


def _empty(review: KindReview, *, is_filtered: bool) -> str:
    if not review.runs:
        return "No run has been launched yet."
    if is_filtered:
        return "No failure fits: take a filter away, or look at more runs."
    return f"Nothing failed in the newest {plural(review.runs, 'run')}."


def _is_data(asked: Asked) -> bool:
    return asked.wanted in (Format.JSON, Format.CSV)


def _row(asked: Asked, kind: Kind, names: Mapping[int, KnownTest]) -> Row:
    signature = kind.signature
    test = names.get(most_often(kind)) if kind.tests else None
    cells: list[Cell] = [
        Text(_said(kind), urls.signature_url(signature.id), note=_beside(kind, test)),
        _badge(kind),
        Number(kind.count),
        Number(len(kind.tests)),
        Names(kind.platforms),
        Names(kind.versions, shown=1),
        Moment(kind.first_seen, asked.now),
        Moment(kind.last_seen, asked.now),
        Names(kind.answering.owners) if kind.answering.owners else Text("nobody"),
        _alike(asked, kind),
    ]
    if _is_data(asked):
        words = (signature.id, signature.frame, signature.kind, test.nodeid if test else "")
        cells += [Text(word) for word in words]
    return Row(cells, id=signature.id, tone=_LOUD.get(kind.standing, ""))


def _beside(kind: Kind, test: KnownTest | None) -> str:
    """Where it is, whose it may be, and a test that has it."""
    signature = kind.signature
    name = test.nodeid.rpartition("::")[2] if test else ""
    more = f" and {len(kind.tests) - 1} more" if len(kind.tests) > 1 else ""
    told = (
        f"at {signature.frame}" if signature.frame else "",
        _HINTS.get(signature.kind, ""),
        f"in {name}{more}" if name else "",
    )
    return " · ".join(filter(None, told))


def _said(kind: Kind) -> str:
    signature = kind.signature
    words = f"{signature.exception}: {signature.message}" if signature.message else ""
    return words.removeprefix(": ") or signature.exception or "failure without words"


def _badge(kind: Kind) -> Badge:
    answering = kind.answering
    now = [one.id for one in answering.issues] + [one.id for one in answering.quarantines]
    ids = ", ".join((now or [one.id for one in answering.over])[:3])
    is_part = 0 < answering.tolerated < kind.count
    note = f"{ids}: {answering.tolerated} of {kind.count}" if is_part else ids
    return Badge(kind.standing, note=note)


def _alike(asked: Asked, kind: Kind) -> Cell:
    if _is_data(asked):
        return Names(kind.similar)
    if not kind.similar:
        return Text("")
    return Text(
        f"{len(kind.similar)} alike", f"{urls.signature_url(kind.signature.id)}#alike-title"
    )
