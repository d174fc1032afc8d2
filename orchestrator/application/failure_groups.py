"""Failure groups of a product's newest runs, new ones first, and one group in detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_run
from orchestrator.application.explain_failures import explain_runs
from orchestrator.application.triage_failures import (
    FailuresToTriage,
    TriageInputs,
    TriageStatus,
    answering,
    most_in_a_run,
)
from orchestrator.domain.failure_signature import (
    SIMILAR,
    FailureGroup,
    FailureGroupListResponse,
    GroupedFailures,
    Signature,
    similar,
)
from orchestrator.domain.grouping import grouped
from orchestrator.domain.node_ids import KnownTest
from orchestrator.store.failure_groups import (
    CellFailureGroup,
    GroupMember,
    Places,
    WindowCell,
    count_by_node_id,
)

_ORDER = {status: number for number, status in enumerate(TriageStatus)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroupFilter:
    """Filter for failures; empty fields do not restrict."""

    product: str | None = None
    runs: int = 20
    platform: str = ""
    version: str = ""
    text: str = ""
    """Text in the signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFailureGroup(GroupedFailures):
    """Failing results of one signature, newest versions first, with their triage."""

    tests: Mapping[int, int]
    """Numbers of results by test number; a node id in several jobs counts as one test."""
    answering: TriageInputs = field(default_factory=TriageInputs)
    status: TriageStatus = TriageStatus.UNOWNED


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroupPage:
    """A page of failure groups."""

    kinds: Sequence[ListedFailureGroup]
    """New groups first, then the largest."""
    runs: int
    """Number of runs."""
    platforms: tuple[str, ...]
    """Platforms of all these runs, for the filter."""
    versions: tuple[str, ...]
    """Versions of these runs, newest first."""


def review_failures(
    context: Context, *, product: str | None, runs: int
) -> FailureGroupListResponse:
    """Return the failures of a product's newest runs by signature, explained, with similar ones."""
    found = context.stores.failures.of_product(product, runs=runs)
    gathered = explain_runs(context.stores, found.failures, at=context.clock.now())
    return FailureGroupListResponse(_similar(context, gathered), found.runs, found.is_cut)


def review_run(context: Context, run_id: str) -> FailureGroupListResponse:
    """Return the failures of one run by signature, as its record has them, with similar ones.

    Raises RunMissingError.
    """
    record = describe_run(context.stores, run_id, at=context.clock.now())
    return FailureGroupListResponse(_similar(context, record.failure_groups), 1, is_cut=False)


def _similar(context: Context, groups: Sequence[FailureGroup]) -> tuple[FailureGroup, ...]:
    near = similar([one.signature for one in groups], context.similarity.messages)
    return tuple(replace(one, similar=near.get(one.signature.id, ())) for one in groups)


def list_failure_groups(context: Context, question: FailureGroupFilter) -> FailureGroupPage:
    """Return the failure groups of the newest runs."""
    store = context.stores.failure_groups
    looked = store.cells(question.product, runs=question.runs)
    chosen = [cell.pk for cell in looked.cells.values() if _is_requested(cell, question)]
    window = store.window(chosen)
    signatures = store.named({group.signature for group in window.groups})
    found = FailuresToTriage(
        groups=window.groups, cells=looked.cells, signatures=signatures, tests=window.tests
    )
    kinds = gather(context, found)
    text = question.text.lower()
    asked = [kind for kind in kinds if text in str(kind.signature).lower()]
    return FailureGroupPage(
        kinds=sorted(asked, key=_urgency),
        runs=looked.runs,
        platforms=tuple(sorted({cell.platform for cell in looked.cells.values()})),
        versions=_versions(looked.cells.values()),
    )


def gather(context: Context, failures: FailuresToTriage) -> list[ListedFailureGroup]:
    """Group these results, with the triage status of each group."""
    now = context.clock.now()
    spans = context.stores.failures.spans(failures.signatures)
    said = answering(context.stores, failures, now=now)
    by_signature = grouped((group.signature, group) for group in failures.groups)
    return [
        _kind(failures, name, groups, spans.get(name), said[name], now)
        for name, groups in by_signature.items()
        if name in failures.signatures
    ]


def with_similar(context: Context, kinds: Sequence[ListedFailureGroup]) -> list[ListedFailureGroup]:
    """Return the groups; each names the others with a similar message."""
    near = similar([kind.signature for kind in kinds], context.similarity.messages)
    return [replace(kind, similar=near.get(kind.signature.id, ())) for kind in kinds]


def names_of(context: Context, kinds: Iterable[ListedFailureGroup]) -> Mapping[int, KnownTest]:
    """Return for each group the test with most results."""
    return context.stores.failure_groups.tests({most_often(kind) for kind in kinds if kind.tests})


def most_often(kind: ListedFailureGroup) -> int:
    """Return the test with most results."""
    return max(kind.tests, key=lambda test: (kind.tests[test], -test))


def _is_requested(cell: WindowCell, question: FailureGroupFilter) -> bool:
    return question.platform in ("", cell.platform) and question.version in ("", cell.version)


def _urgency(kind: ListedFailureGroup) -> tuple[int, int, str]:
    return _ORDER[kind.status], -kind.count, kind.signature.id


def _kind(
    failures: FailuresToTriage,
    name: str,
    groups: Sequence[CellFailureGroup],
    span: tuple[datetime, datetime] | None,
    triage_inputs: TriageInputs,
    now: datetime,
) -> ListedFailureGroup:
    cells = [failures.cells[group.cell] for group in groups]
    count = sum(group.count for group in groups)
    times = [cell.at for cell in cells]
    first = min([*times, span[0]]) if span else min(times)
    last = max([*times, span[1]]) if span else max(times)
    return ListedFailureGroup(
        signature=failures.signatures[name],
        count=count,
        tests=failures.tests.get(name, {}),
        jobs=_sorted(group.job for group in groups),
        platforms=_sorted(cell.platform for cell in cells),
        cells=_sorted(cell.name for cell in cells),
        versions=_versions(cells),
        runs=len({cell.run_id for cell in cells}),
        first_seen=first,
        last_seen=last,
        answering=triage_inputs,
        status=triage_inputs.status(count, first_seen=first, now=now),
    )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _versions(cells: Collection[WindowCell]) -> tuple[str, ...]:
    newest = sorted(cells, key=lambda cell: (cell.at, cell.pk), reverse=True)
    return tuple(dict.fromkeys(cell.version for cell in newest))


LOOKED = 2_000
"""Maximum newest results of a signature that are read."""
_COMPARED = 200
_ALIKE = 10


@dataclass(frozen=True, slots=True)
class MessageVariant:
    """Failing results with equal messages."""

    message: str
    count: int
    newest: GroupMember


@dataclass(frozen=True, slots=True)
class FailureSite:
    """Results of one test in cells of one name, of one version."""

    test_id: int
    cell: WindowCell
    """The newest cell."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroupDetail:
    """A failure group in detail."""

    signature: Signature
    kind: ListedFailureGroup | None
    """The group; None if it has no results any more."""
    product: str
    """The product of its newest result."""
    traceback: str
    """The traceback of the newest result."""
    newest: WindowCell | None
    newest_test: int
    most_in_a_run: int
    variants: Sequence[MessageVariant]
    """Messages of the results, most frequent first."""
    spots: Sequence[FailureSite]
    """Newest first."""
    tests: Mapping[int, KnownTest]
    cells: Mapping[int, WindowCell]
    alike: Sequence[Signature]
    """Signatures of similar groups, as a suggestion."""
    is_cut: bool
    """Whether older results exist that were not read."""


def show_failure_group(context: Context, signature_id: str) -> FailureGroupDetail | None:
    """Return the failure group; None for an unknown signature."""
    store = context.stores.failure_groups
    signature = context.stores.failures.get(signature_id)
    if signature is None:
        return None
    places = store.places(signature_id, limit=LOOKED)
    tests = store.tests({place.test_id for place in places.items})
    newest = places.items[0] if places.items else None
    found = _found(signature, places, tests)
    kinds = gather(context, found) if places.items else []
    in_a_run = most_in_a_run(found.groups, places.cells)
    return FailureGroupDetail(
        signature=signature,
        kind=kinds[0] if kinds else None,
        product=places.cells[newest.cell].product if newest else "",
        traceback=store.traceback(newest) if newest else "",
        newest=places.cells[newest.cell] if newest else None,
        newest_test=newest.test_id if newest else 0,
        most_in_a_run=max(in_a_run.values(), default=0),
        variants=_variants(places.items),
        spots=_spots(places),
        tests=tests,
        cells=places.cells,
        alike=_alike(context, signature),
        is_cut=places.is_cut,
    )


def _found(
    signature: Signature, places: Places, tests: Mapping[int, KnownTest]
) -> FailuresToTriage:
    by_job: Counter[tuple[str, int]] = Counter()
    for place in places.items:
        by_job[tests[place.test_id].job, place.cell] += 1
    results = ((signature.id, tests[place.test_id], 1) for place in places.items)
    return FailuresToTriage(
        groups=[
            CellFailureGroup(signature.id, job, cell, many) for (job, cell), many in by_job.items()
        ],
        cells=places.cells,
        signatures={signature.id: signature},
        tests=count_by_node_id(results),
    )


def _variants(places: Iterable[GroupMember]) -> list[MessageVariant]:
    newest: dict[str, GroupMember] = {}
    counts: Counter[str] = Counter()
    for place in places:
        newest.setdefault(place.message, place)
        counts[place.message] += 1
    return [
        MessageVariant(message, many, newest[message]) for message, many in counts.most_common()
    ]


def _spots(places: Places) -> list[FailureSite]:
    newest: dict[tuple[int, str, str], WindowCell] = {}
    counts: Counter[tuple[int, str, str]] = Counter()
    for place in places.items:
        cell = places.cells[place.cell]
        key = (place.test_id, cell.name, cell.version)
        newest.setdefault(key, cell)
        counts[key] += 1
    return [FailureSite(key[0], cell, counts[key]) for key, cell in newest.items()]


def _alike(context: Context, signature: Signature) -> list[Signature]:
    if not signature.message:
        return []
    found = context.stores.failure_groups.of_exception(signature.exception, limit=_COMPARED)
    similarity = context.similarity.messages
    near = [
        one
        for one in found
        if one.id != signature.id
        and one.message
        and similarity(one.message, signature.message) >= SIMILAR
    ]
    return near[:_ALIKE]
