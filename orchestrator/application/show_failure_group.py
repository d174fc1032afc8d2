"""One kind of failure: what was said, how it varies, and where it was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.application.context import Context
from orchestrator.application.list_failure_groups import ListedFailureGroup, gather
from orchestrator.application.triage_failures import FailuresToTriage, most_in_a_run
from orchestrator.domain.alias import KnownTest
from orchestrator.domain.signature import SIMILAR, Signature
from orchestrator.store.failure_groups import Group, Place, Places, WindowCell

LOOKED = 2_000
"""The newest results of a signature that are looked at."""
_COMPARED = 200
_ALIKE = 10


@dataclass(frozen=True, slots=True)
class MessageVariant:
    """Results that say the very same words."""

    message: str
    count: int
    newest: Place


@dataclass(frozen=True, slots=True)
class FailureSite:
    """Results of one test, in one kind of cell, of one version."""

    test_id: int
    cell: WindowCell
    """The newest of them."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroupDetail:
    """Everything about a kind of failure."""

    signature: Signature
    kind: ListedFailureGroup | None
    """None where no result has it any more."""
    product: str
    """Of its newest result."""
    traceback: str
    """Of the newest result."""
    newest: WindowCell | None
    newest_test: int
    most_in_a_run: int
    variants: Sequence[MessageVariant]
    """Those said most often first."""
    spots: Sequence[FailureSite]
    """The newest first."""
    tests: Mapping[int, KnownTest]
    cells: Mapping[int, WindowCell]
    alike: Sequence[Signature]
    """That may be the same; a suggestion."""
    is_cut: bool
    """There are older results than those looked at."""


def show_failure_group(context: Context, signature_id: str) -> FailureGroupDetail | None:
    """The kind of failure; None where there is no such signature."""
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
    by_test: Counter[int] = Counter()
    for place in places.items:
        by_job[tests[place.test_id].job, place.cell] += 1
        by_test[place.test_id] += 1
    return FailuresToTriage(
        groups=[Group(signature.id, job, cell, many) for (job, cell), many in by_job.items()],
        cells=places.cells,
        signatures={signature.id: signature},
        tests={signature.id: by_test},
    )


def _variants(places: Iterable[Place]) -> list[MessageVariant]:
    newest: dict[str, Place] = {}
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
