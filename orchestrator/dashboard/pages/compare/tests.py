"""Cells and tests of two runs: what failed, what was mended, what was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.application.compare_cells import Facing
from orchestrator.application.ports.differences import Changed
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut
from orchestrator.dashboard.pages.compare.summary import Contrast
from orchestrator.dashboard.pages.test_names import name_cell
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Badge, Cell, Column, Number, Row, Table, Text
from orchestrator.domain.alias import KnownTest
from orchestrator.domain.cell import Cell as RunCell
from orchestrator.domain.difference import Difference
from orchestrator.domain.outcome import TestOutcome

EACH = 10
"""Tests of one kind that are shown at first."""
PAGE_SIZE = 100
_LONGEST_MESSAGE = 240
_LOUD = frozenset({Difference.NEW_FAILURE, Difference.MISSING})
_ALWAYS = frozenset(
    {Difference.NEW_FAILURE, Difference.STILL_FAILING, Difference.MISSING, Difference.FIXED}
)
_USUAL = "tests"
"""Why cells fail: no news."""
TITLES = {
    Difference.NEW_FAILURE: "New failures",
    Difference.STILL_FAILING: "Still failing",
    Difference.MISSING: "Missing",
    Difference.HIDDEN: "Unknown",
    Difference.NEWLY_SKIPPED: "Newly skipped",
    Difference.FIXED: "Fixed",
    Difference.CHANGED: "Changed otherwise",
    Difference.NEW: "New tests",
    Difference.GONE: "Gone tests",
    Difference.SAME: "Same",
}
_MEANS = {
    Difference.NEW_FAILURE: "They passed, were skipped, or were not there before.",
    Difference.MISSING: "They were collected, and never reported or never ran.",
    Difference.HIDDEN: "Their module could not be collected: the collection error hid them.",
    Difference.GONE: "They are not collected any more, under any name that somebody confirmed.",
    Difference.SAME: "They went as before.",
}
_CELLS = (
    Column("platform", "Platform"),
    Column("a", "A"),
    Column("b", "B"),
)
_PLATFORM = Column("platform", "Platform")
_TESTS = (
    Column("test", "Test"),
    Column("before", "A"),
    Column("after", "B"),
    Column("message", "Message"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """The tests of one kind."""

    kind: Difference
    title: str
    many: int
    means: str
    table: Table


def cells_table(asked: Asked, contrast: Contrast) -> Table:
    """How each platform went, and how many of its tests went which way."""
    places = {pair: at for at, pair in enumerate(contrast.pairs)}
    kinds = _kinds(contrast)
    rows = [
        _cell_row(asked, contrast, facing, places.get(facing.pair) if facing.pair else None, kinds)
        for facing in contrast.facing
    ]
    counted = (Column(kind.value, TITLES[kind], is_number=True) for kind in kinds)
    return Table(
        id="platforms",
        caption="Test outcomes by platform",
        columns=(*_CELLS, *counted),
        rows=rows,
        empty="Neither run has a platform.",
        is_caption_hidden=True,
    )


def _kinds(contrast: Contrast) -> Sequence[Difference]:
    """Those that some test went; what everybody asks for even where there is none of it."""
    if not contrast.has_tests:
        return ()
    return [kind for kind in TITLES if kind in _ALWAYS or contrast.total(kind)]


def _cell_row(
    asked: Asked,
    contrast: Contrast,
    facing: Facing,
    place: int | None,
    kinds: Sequence[Difference],
) -> Row:
    name = Text(facing.name, _alone(asked, facing), _said_of(contrast, facing, place))
    sides = (_outcome(facing.before), _outcome(facing.after))
    if place is None or contrast.lacking(place):
        is_lost = place is None or contrast.lacking(place) in ("A", "B")
        return Row((name, *sides, *(Number(None) for _ in kinds)), tone="warn" if is_lost else "")
    found = contrast.of_pair(place)
    counts = (Number(found[kind], is_loud=kind in _LOUD) for kind in kinds)
    return Row((name, *sides, *counts), tone="bad" if found[Difference.NEW_FAILURE] else "")


def _alone(asked: Asked, facing: Facing) -> str:
    """The comparison of this platform alone."""
    if facing.before is None or facing.after is None or facing.how == "chosen":
        return ""
    return asked.here(
        cell_a=facing.before.name, cell_b=facing.after.name, what="", skip="", part=""
    )


def _said_of(contrast: Contrast, facing: Facing, place: int | None) -> str:
    if facing.before is None:
        return "only in B"
    if facing.after is None:
        return "only in A"
    lacking = contrast.lacking(place) if place is not None else ""
    if lacking and contrast.has_tests:
        return f"no tests in {lacking}: nothing to compare"
    if facing.how == "platform":
        return "the same machine under another name"
    return "" if facing.name not in contrast.other_stack else "† another stack"


def _outcome(cell: RunCell | None) -> Cell:
    if cell is None:
        return Badge("")
    href = urls.cell_url(cell.run_id, cell.name)
    why = "" if cell.reason == _USUAL else cut(cell.reason.replace("_", " "), 60)
    return Badge(cell.outcome or cell.state, href, why)


def sections(asked: Asked, contrast: Contrast, *, what: str, skip: int) -> Sequence[Section]:
    """The kinds of differences that there are, the worst first; or one of them, page by page."""
    if what:
        return [_one(asked, contrast, Difference(what), skip)] if what in list(Difference) else []
    by_kind: dict[Difference, list[Changed]] = {}
    sound = set(contrast.both_sided)
    for one in contrast.first:
        of_kind = by_kind.setdefault(one.difference, [])
        if one.pair in sound and len(of_kind) < EACH:
            of_kind.append(one)
    made = [
        _section(contrast, kind, tests, _further(asked, contrast, kind), range(len(contrast.pairs)))
        for kind, tests in by_kind.items()
        if tests
    ]
    if asked.query.get("all") and contrast.total(Difference.SAME):
        made.append(_one(asked, contrast, Difference.SAME, 0))
    return made


def _further(asked: Asked, contrast: Contrast, kind: Difference) -> str:
    return asked.here(what=kind.value) if contrast.total(kind) > EACH else ""


def _one(asked: Asked, contrast: Contrast, kind: Difference, skip: int) -> Section:
    pairs = [contrast.pairs[at] for at in contrast.both_sided]
    found = asked.context.stores.differences.page(
        pairs, product=contrast.product, kinds=[kind], limit=PAGE_SIZE, skip=skip
    )
    more = skip + len(found) < contrast.total(kind)
    after = asked.here(what=kind.value, skip=str(skip + PAGE_SIZE)) if more else ""
    return _section(contrast, kind, found, after, contrast.both_sided)


def _section(
    contrast: Contrast,
    kind: Difference,
    found: Sequence[Changed],
    after: str,
    places: Sequence[int],
) -> Section:
    """A table of tests whose pairs are counted as these places stand."""
    many, title = contrast.total(kind), TITLES[kind]
    names: Mapping[int, str] = {at: contrast.cell(place).name for at, place in enumerate(places)}
    is_alone = len(contrast.facing) == 1
    rows = [_test_row(one, names, contrast.product) for one in found]
    table = Table(
        id=kind.value,
        caption=f"{title} ({many:,})",
        columns=_TESTS if is_alone else (_TESTS[0], _PLATFORM, *_TESTS[1:]),
        rows=[Row((row[0], *row[2:]) if is_alone else row) for row in rows],
        empty=f"No test is here: {title.lower()} there are none.",
        next=after,
        total=many,
        is_caption_hidden=True,
    )
    return Section(kind, title, many, _MEANS.get(kind, ""), table)


def _test_row(one: Changed, names: Mapping[int, str], product: str) -> tuple[Cell, ...]:
    """Test, platform, before, after, message."""
    was = f"was {one.was}" if one.was else ""
    return (
        name_cell(KnownTest(one.test, product, one.job, one.nodeid), was),
        Text(names[one.pair]),
        _went(one.before),
        _went(one.after),
        Text(cut(one.message, _LONGEST_MESSAGE)),
    )


def _went(outcome: TestOutcome | None) -> Cell:
    return Badge(outcome.word) if outcome is not None else Text("not there")
