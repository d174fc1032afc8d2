"""The tables of a comparison of two runs: platforms, environments, tests and benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from orchestrator.application.benchmarks import Delta, MetricChange
from orchestrator.application.compare_cells import STACK, CellPair, EnvironmentProperty
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.measurement_text import (
    MedianText,
    RelativeChange,
    direction_of,
    params_of,
    unit_of,
)
from orchestrator.dashboard.pages.tests import name_cell
from orchestrator.dashboard.responses import PageRequest
from orchestrator.dashboard.table import Badge, Column, Number, Row, Table, TableCell, Text
from orchestrator.domain.cell import Cell, Run
from orchestrator.domain.compare_tests import Difference
from orchestrator.domain.environment_fingerprint import PACKAGE
from orchestrator.domain.node_ids import KnownTest
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.units import plural
from orchestrator.store.run_comparison import ChangedTest, DifferenceCount, Pair

_ONLY_AFTER = frozenset({Difference.NEW, Difference.NEW_FAILURE, Difference.MISSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs with their cells and their differences."""

    before: Run
    after: Run
    product: str
    other_product: str
    """Product of the older run if it differs from the newer run's; else empty."""
    subject_difference: str
    """How the subjects' wheels differ although their versions do not."""
    facing: Sequence[CellPair]
    pairs: Sequence[Pair]
    """Ids of the cells that are compared with each other."""
    counts: Sequence[DifferenceCount]
    """Number of tests by pair and kind of difference."""
    first: Sequence[ChangedTest]
    """The first tests of each pair and kind, the worst kind first."""
    traits: Sequence[EnvironmentProperty]
    silent: Sequence[tuple[str, str]]
    """Cells with a side that did not report its environment: (name, sides)."""
    deltas: Sequence[Delta]
    other_stack: frozenset[str]
    """Names of cells whose stack differs between the two sides."""
    names: tuple[Sequence[str], Sequence[str]]
    """Names of the cells of the older run and of the newer run."""

    @property
    def title(self) -> str:
        """Title such as ``Compare aurora 2.6.0rc1 → 2.6.0rc2``, with the chosen cells, if any."""
        if len(self.facing) == 1 and self.facing[0].how == "chosen":
            cells = f"{self.facing[0].name}, "
        else:
            cells = ""
        old = f"{self.before.subject_name} {self.before.subject_version}".strip()
        same = self.before.subject_name == self.after.subject_name
        new = self.after.subject_version if same else self.after.subject_name
        new = new if same else f"{new} {self.after.subject_version}"
        words = old if self.before.id == self.after.id else f"{old} → {new}"
        return visible(cut(f"Compare {cells}{words}", 200))

    def cell(self, pair: int) -> CellPair:
        """Return the pair of cells with this number."""
        return [one for one in self.facing if one.pair is not None][pair]

    def of_pair(self, pair: int) -> Counter[Difference]:
        """Return the numbers of a pair's tests by difference."""
        found: Counter[Difference] = Counter()
        for one in self.counts:
            if one.pair == pair:
                found[one.difference] += one.tests
        return found

    def lacking(self, pair: int) -> str:
        """Return the sides of a pair without any test: ``A``, ``B``, ``A and B``, or empty."""
        found = self.of_pair(pair)
        if not found:
            return "A and B"
        if set(found) <= {Difference.GONE, Difference.HIDDEN}:
            return "B"
        fresh = not set(found) - _ONLY_AFTER
        return "A" if fresh and Difference.NEW in found else ""

    @property
    def both_sided(self) -> Sequence[int]:
        """Indices of the pairs with results on both sides."""
        return [at for at in range(len(self.pairs)) if not self.lacking(at)]

    @property
    def has_tests(self) -> bool:
        """Whether any platform has tests on both sides."""
        return bool(self.both_sided)

    def total(self, difference: Difference) -> int:
        """Return the number of tests with this difference, over pairs with tests on both sides."""
        sound = set(self.both_sided)
        mine = (one for one in self.counts if one.difference is difference and one.pair in sound)
        return sum(one.tests for one in mine)


_ROWS = 60
_PACKAGES = 150
_CELLS_NAMED = 4
_COLUMNS = (
    Column("what", "What"),
    Column("a", "A"),
    Column("b", "B"),
    Column("verdict", "Verdict"),
    Column("platforms", "Platforms"),
)
_CALLED = {"runtime": "runtime (CUDA, HIP, XLA)", "os": "operating system"}


@dataclass(frozen=True, slots=True)
class PlaceNotes:
    """The differences of the environments as sentences."""

    differing: Sequence[str]
    """The parts of the stack that differ."""
    equal: str
    unknown: str
    packages: str
    """How many packages differ, as a sentence."""
    silent: Sequence[str]
    """Platforms with a side that has no recorded facts."""
    is_known: bool
    """Whether any platform has recorded facts on both sides."""


def place_notes(contrast: RunComparison) -> PlaceNotes:
    """Return the machine facts that differ, that are equal, and that are unknown."""
    traits = contrast.traits
    differing = dict.fromkeys(f"{called(one)} {one.before} → {one.after}" for one in _stack(traits))
    return PlaceNotes(
        differing=[visible(cut(words, 120)) for words in differing],
        equal=_listed(traits, lambda one: one.is_known and not one.differs),
        unknown=_listed(traits, lambda one: not one.is_known and not one.is_package),
        packages=_packages(traits),
        silent=[visible(cut(f"{name} in {sides}", 80)) for name, sides in contrast.silent],
        is_known=bool(traits),
    )


def _packages(traits: Sequence[EnvironmentProperty]) -> str:
    """Return a text such as ``3 packages differ, 1 package on one side only``."""
    differing = {one.what for one in traits if one.is_package and one.differs}
    half = {one.what for one in traits if one.is_package and _is_half(one)} - differing
    told = [f"{plural(len(differing), 'package')} differ{'s' * (len(differing) == 1)}"]
    if half:
        told.append(f"{plural(len(half), 'package')} on one side only")
    return ", ".join(told)


def called(trait: EnvironmentProperty) -> str:
    """Return a difference's label."""
    return _CALLED.get(trait.what, trait.what)


def _stack(traits: Iterable[EnvironmentProperty]) -> Iterable[EnvironmentProperty]:
    return (one for one in traits if one.differs and one.what in STACK)


def _listed(
    traits: Sequence[EnvironmentProperty], is_wanted: Callable[[EnvironmentProperty], bool]
) -> str:
    """Return the wanted facts as a list such as ``torch 2.13, python 3.12.3 and 24 packages``."""
    other = {one.what for one in traits if not is_wanted(one)}
    values: dict[str, set[str]] = {}
    for one in traits:
        if one.what not in other:
            values.setdefault(one.what, set()).add(one.before)
    packages = [what for what in values if what.startswith(PACKAGE)]
    words = [
        visible(cut(f"{_CALLED.get(what, what)} {' '.join(some)}", 80)).strip()
        if len(some) == 1
        else _CALLED.get(what, what)
        for what, some in values.items()
        if what not in packages
    ]
    if packages:
        words.append(f"{len(packages):,} package{'s' if len(packages) > 1 else ''}")
    return ", ".join(words)


def environment_table(request: PageRequest, contrast: RunComparison) -> Table:
    """Return the table of differing facts without packages; of all facts on request."""
    shown = [one for one in _shown(request, contrast) if not one.is_package]
    return Table(
        id="environment",
        caption="What differs between the environments, but packages",
        columns=_COLUMNS,
        rows=[_row(one, contrast) for one in shown[:_ROWS]],
        empty=_empty(contrast),
        is_caption_hidden=True,
    )


def packages_table(request: PageRequest, contrast: RunComparison) -> Table:
    """Return the table of packages with different versions, or of all packages."""
    shown = [one for one in _shown(request, contrast) if one.is_package]
    return Table(
        id="packages",
        caption="Packages with other versions",
        columns=_COLUMNS,
        rows=[_row(one, contrast) for one in shown[:_PACKAGES]],
        empty="No package differs.",
        total=len(shown),
        is_caption_hidden=True,
    )


def _shown(request: PageRequest, contrast: RunComparison) -> Sequence[EnvironmentProperty]:
    whole = bool(request.query.get("all"))
    return [one for one in contrast.traits if whole or one.differs or _is_half(one)]


def _is_half(trait: EnvironmentProperty) -> bool:
    """Return whether a fact is known of one side only, which may hide a difference."""
    return bool(trait.before) != bool(trait.after)


def _empty(contrast: RunComparison) -> str:
    if not contrast.pairs:
        return "The runs have no platform in common: choose a platform of each."
    if not contrast.traits:
        return "On no platform did both sides tell where they ran: they may differ."
    return "No property except packages differs, as far as both environments are known."


def _row(trait: EnvironmentProperty, contrast: RunComparison) -> Row:
    many = len(contrast.pairs) - len(contrast.silent)
    is_loud = trait.differs and trait.what in STACK
    word = "unknown" if not trait.is_known else "equal"
    if trait.differs:
        word = "differs" if is_loud else "changed"
    return Row(
        (
            Text(called(trait).removeprefix(PACKAGE)),
            Text(trait.before or "not known"),
            Text(trait.after or "not known"),
            Badge(word),
            _platforms(trait, many),
        ),
        tone="warn" if is_loud else "",
    )


def _platforms(trait: EnvironmentProperty, many: int) -> Text:
    if len(trait.cells) == many > 1:
        return Text("all")
    named = ", ".join(trait.cells[:_CELLS_NAMED])
    more = len(trait.cells) - _CELLS_NAMED
    return Text(f"{named} and {more} more" if more > 0 else named)


EACH = 10
"""Number of tests of one kind that are shown at first."""
PAGE_SIZE = 100
_LONGEST_MESSAGE = 240
_LOUD = frozenset({Difference.NEW_FAILURE, Difference.MISSING})
_ALWAYS = frozenset(
    {Difference.NEW_FAILURE, Difference.STILL_FAILING, Difference.MISSING, Difference.FIXED}
)
_USUAL = "tests"
"""The usual reason of a failed cell, which is not shown."""
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
    Difference.NEW_FAILURE: (
        "In the earlier run these tests passed, were skipped, never reported or did not exist."
    ),
    Difference.MISSING: "They were collected, and never reported or never ran.",
    Difference.HIDDEN: (
        "Their module could not be collected, or a run was ingested from a source that only counts"
        " its other tests."
    ),
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
class DifferenceSection:
    """The tests of one kind."""

    kind: Difference
    title: str
    many: int
    means: str
    table: Table


def cells_table(request: PageRequest, contrast: RunComparison) -> Table:
    """Return the table of platforms with their outcomes and numbers of changed tests."""
    places = {pair: at for at, pair in enumerate(contrast.pairs)}
    kinds = _kinds(contrast)
    rows = [
        _cell_row(
            request, contrast, facing, places.get(facing.pair) if facing.pair else None, kinds
        )
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


def _kinds(contrast: RunComparison) -> Sequence[Difference]:
    """Return the differences that some test has, and those that are always shown."""
    if not contrast.has_tests:
        return ()
    return [kind for kind in TITLES if kind in _ALWAYS or contrast.total(kind)]


def _cell_row(
    request: PageRequest,
    contrast: RunComparison,
    facing: CellPair,
    place: int | None,
    kinds: Sequence[Difference],
) -> Row:
    name = Text(facing.name, _alone(request, facing), _sentence_of(contrast, facing, place))
    sides = (_outcome(facing.before), _outcome(facing.after))
    if place is None or contrast.lacking(place):
        is_lost = place is None or contrast.lacking(place) in ("A", "B")
        return Row((name, *sides, *(Number(None) for _ in kinds)), tone="warn" if is_lost else "")
    found = contrast.of_pair(place)
    counts = (Number(found[kind], is_loud=kind in _LOUD) for kind in kinds)
    return Row((name, *sides, *counts), tone="bad" if found[Difference.NEW_FAILURE] else "")


def _alone(request: PageRequest, facing: CellPair) -> str:
    """Return the URL of the comparison of these two cells; empty without both."""
    if facing.before is None or facing.after is None or facing.how == "chosen":
        return ""
    return request.here(
        cell_a=facing.before.name, cell_b=facing.after.name, what="", skip="", part=""
    )


def _sentence_of(contrast: RunComparison, facing: CellPair, place: int | None) -> str:
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


def _outcome(cell: Cell | None) -> TableCell:
    if cell is None:
        return Badge("")
    href = urls.cell_url(cell.run_id, cell.name)
    why = "" if cell.reason == _USUAL else cut(cell.reason.replace("_", " "), 60)
    return Badge(cell.outcome or cell.state, href, why)


def sections(
    request: PageRequest, contrast: RunComparison, *, what: str, skip: int
) -> Sequence[DifferenceSection]:
    """Return the sections of all differences, worst first; or one difference with its pages."""
    if what:
        return [_one(request, contrast, Difference(what), skip)] if what in list(Difference) else []
    by_kind: dict[Difference, list[ChangedTest]] = {}
    sound = set(contrast.both_sided)
    for one in contrast.first:
        of_kind = by_kind.setdefault(one.difference, [])
        if one.pair in sound and len(of_kind) < EACH:
            of_kind.append(one)
    made = [
        _section(
            contrast,
            kind,
            tests,
            _further(request, contrast, kind),
            range(len(contrast.pairs)),
        )
        for kind, tests in by_kind.items()
        if tests
    ]
    if request.query.get("all") and contrast.total(Difference.SAME):
        made.append(_one(request, contrast, Difference.SAME, 0))
    return made


def _further(request: PageRequest, contrast: RunComparison, kind: Difference) -> str:
    return request.here(what=kind.value) if contrast.total(kind) > EACH else ""


def _one(
    request: PageRequest, contrast: RunComparison, kind: Difference, skip: int
) -> DifferenceSection:
    pairs = [contrast.pairs[at] for at in contrast.both_sided]
    found = request.context.stores.differences.page(
        pairs, product=contrast.product, kinds=[kind], limit=PAGE_SIZE, skip=skip
    )
    more = skip + len(found) < contrast.total(kind)
    after = request.here(what=kind.value, skip=str(skip + PAGE_SIZE)) if more else ""
    return _section(contrast, kind, found, after, contrast.both_sided)


def _section(
    contrast: RunComparison,
    kind: Difference,
    changed: Sequence[ChangedTest],
    after: str,
    places: Sequence[int],
) -> DifferenceSection:
    """Return a table of test pairs, counted for the selected platforms."""
    many, title = contrast.total(kind), TITLES[kind]
    names: Mapping[int, str] = {at: contrast.cell(place).name for at, place in enumerate(places)}
    is_alone = len(contrast.facing) == 1
    rows = [_test_row(one, names, contrast.product) for one in changed]
    table = Table(
        id=kind.value,
        caption=f"{title} ({many:,})",
        columns=_TESTS if is_alone else (_TESTS[0], _PLATFORM, *_TESTS[1:]),
        rows=[Row((row[0], *row[2:]) if is_alone else row) for row in rows],
        empty=f"No {title[0].lower()}{title[1:]}.",
        next=after,
        total=many,
        is_caption_hidden=True,
    )
    return DifferenceSection(kind, title, many, _MEANS.get(kind, ""), table)


def _test_row(one: ChangedTest, names: Mapping[int, str], product: str) -> tuple[TableCell, ...]:
    """Return the row of a test: name, platform, outcome before and after, message."""
    was = f"was {one.was}" if one.was else ""
    return (
        name_cell(KnownTest(one.test, product, one.job, one.nodeid), was),
        Text(names[one.pair]),
        _went(one.before),
        _went(one.after),
        Text(cut(one.message, _LONGEST_MESSAGE)),
    )


def _went(outcome: TestOutcome | None) -> TableCell:
    return Badge(outcome.word) if outcome is not None else Text("not there")


PERFORMANCE = "performance"
SHOWN = 25

_BENCHMARK_COLUMNS = (
    Column("benchmark", "Benchmark"),
    Column("platform", "Platform"),
    Column("a", "A", is_number=True),
    Column("b", "B", is_number=True),
    Column("change", "Change"),
)


@dataclass(frozen=True, slots=True)
class Speeds:
    """The compared benchmarks of two runs."""

    many: int
    """Number of benchmarks that both sides have measured."""
    counts: Counter[str]
    """Number of benchmarks by verdict."""
    marked: bool
    """Whether the sides of any shown benchmark were measured with different stacks."""
    table: Table


def speeds_of(request: PageRequest, contrast: RunComparison, *, what: str, skip: int) -> Speeds:
    """Return the changed metrics, the largest regression first; on request all metrics."""
    whole = bool(request.query.get("all"))
    counts: Counter[str] = Counter(one.verdict.value for one in contrast.deltas)
    listed = [one for one in contrast.deltas if whole or one.verdict is not MetricChange.ALIKE]
    alone = what == PERFORMANCE
    known = {one.benchmark.number: one.benchmark.name for one in contrast.deltas}
    several = {name for name, many in Counter(known.values()).items() if many > 1}
    first, size = (skip, PAGE_SIZE) if alone else (0, SHOWN)
    shown = [] if what and not alone else list(islice(listed, first, first + size))
    more = len(listed) > first + len(shown) and bool(shown)
    further = request.here(what=PERFORMANCE, skip=str(first + size) if alone else "")
    table = Table(
        id=PERFORMANCE,
        caption="Benchmarks that both have measured",
        columns=_BENCHMARK_COLUMNS,
        rows=[_benchmark_row(contrast, one, several) for one in shown],
        empty=_no_benchmarks(contrast, listed=bool(listed)),
        next=further if more else "",
        total=len(listed),
        is_caption_hidden=True,
    )
    marked = any(contrast.cell(one.pair).name in contrast.other_stack for one in shown)
    return Speeds(len(contrast.deltas), counts, marked, table)


def _no_benchmarks(contrast: RunComparison, *, listed: bool) -> str:
    if not contrast.deltas:
        return "No benchmark was measured by both; cells that are not done count for nothing yet."
    return "" if listed else "The spreads of every benchmark touch: none differs."


def _benchmark_row(contrast: RunComparison, one: Delta, several: Collection[str]) -> Row:
    benchmark, unit = one.benchmark, unit_of(one.benchmark)
    platform = contrast.cell(one.pair).name
    other = "† another stack" if platform in contrast.other_stack else ""
    after = contrast.cell(one.pair).after
    cell = after.name if after is not None else ""
    href = urls.with_query(
        urls.benchmark_url(benchmark.job, benchmark.name),
        product=contrast.product,
        platform=cell,
        variant=str(benchmark.number),
    )
    params = params_of(benchmark.params) if benchmark.name in several else ""
    told = (benchmark.job, params, direction_of(benchmark))
    return Row(
        (
            Text(benchmark.name, href, " · ".join(word for word in told if word)),
            Text(platform),
            MedianText(one.before, unit),
            MedianText(one.after, unit),
            RelativeChange(one.verdict.value, one.change, other),
        )
    )
