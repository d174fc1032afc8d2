"""The release board: versions by platforms, each with its newest result and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import zip_longest

from orchestrator.domain.outcome import worst
from orchestrator.store.release_board import (
    KnownCell,
    LiveRun,
    Release,
    ReleaseCell,
    ReleaseVerdict,
    Version,
)
from orchestrator.store.stores import Stores

LIVE_RUNS = 10


class Absence(StrEnum):
    """The reason for a missing result of a version on a platform."""

    MISSING = "missing"
    """The platform existed then, and was not tested, or its cell is unfinished."""
    PENDING = "pending"
    """The platform was added later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardCell:
    """A version on a platform."""

    cell: ReleaseCell | None
    """The worst cell over several matrices."""
    others: int = 0
    """Number of cells of other matrices, or with other jobs, that are not shown."""
    absence: Absence | None = None
    is_superseded: bool = False
    """Whether a newer run of the version and matrix lacks this platform."""
    is_stale: bool = False
    """Whether it is older than the gates allow."""
    other_jobs: frozenset[str] = frozenset()
    """Jobs that it lacks, and that other runs of the matrix had there: of the version, or of the
    version before it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """A version of the product."""

    of: Version
    newest_run: str
    at: datetime | None
    """Time of its newest evidence; None without any."""
    squares: Sequence[BoardCell]
    """One entry for each platform."""
    verdicts: Sequence[ReleaseVerdict]
    live: LiveRun | None
    """The newest unfinished run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A page of the release board."""

    names: Sequence[str]
    """Platform names: the cells of runs."""
    rows: Sequence[BoardRow]
    matrices: Sequence[str]
    """Matrices of the product's runs."""
    live: Sequence[LiveRun]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFilter:
    """Filter of a board."""

    product: str
    matrix: str = ""
    """Empty includes all."""
    limit: int = 20
    before: str | None = None
    max_age: timedelta | None = None
    """Maximum age of evidence for the gates."""


def release_board(stores: Stores, wanted: BoardFilter, *, at: datetime) -> Board:
    """Return the board, in a fixed number of statements."""
    releases = stores.releases
    page = releases.page(
        wanted.product, matrix=wanted.matrix, limit=wanted.limit, before=wanted.before
    )
    known = releases.cells(wanted.product)
    mine = [one for one in known if wanted.matrix in ("", one.matrix)]
    names = _names(mine, page)
    told = releases.verdicts(wanted.product, [one.of for one in page]) if page else []
    live = releases.live(wanted.product, limit=LIVE_RUNS)
    spans = _spans(mine)
    rows = []
    for place, (release, older) in enumerate(zip_longest(page, page[1:])):
        is_current = place == 0 and not wanted.before
        max_age = wanted.max_age if is_current else None
        oldest = at - max_age if max_age is not None else None
        rows.append(
            BoardRow(
                of=release.of,
                newest_run=release.newest_run,
                at=max((cell.at for cell in release.cells), default=None),
                squares=[_square(release, older, name, spans[name], oldest) for name in names],
                verdicts=[one for one in told if one.of == release.of],
                live=next((one for one in live if one.of == release.of), None),
            )
        )
    matrices = list(dict.fromkeys(one.matrix for one in known))
    return Board(names=names, rows=rows, matrices=matrices, live=live, next=page.next)


def _spans(known: Iterable[KnownCell]) -> Mapping[str, str]:
    """Return the first run of each cell name."""
    first: dict[str, str] = {}
    for one in known:
        first[one.name] = min(first.get(one.name, one.first_run), one.first_run)
    return first


def _names(known: Iterable[KnownCell], page: Sequence[Release]) -> list[str]:
    """Return platforms of these versions in the order of the newest matrix."""
    if not page:
        return []
    first, last = page[-1].newest_run, page[0].newest_run
    there = {cell.name for release in page for cell in release.cells}
    used = (
        one
        for one in known
        if one.name in there or (one.newest_run >= first and one.first_run <= last)
    )
    return list(dict.fromkeys(one.name for one in used))


def _square(
    release: Release, older: Release | None, name: str, first: str, oldest: datetime | None
) -> BoardCell:
    mine = [cell for cell in release.cells if cell.name == name]
    if not mine:
        is_late = first > release.newest_run
        return BoardCell(cell=None, absence=Absence.PENDING if is_late else Absence.MISSING)
    shown = _worst(mine)
    newest = max(cell.run for cell in release.cells if cell.matrix == shown.matrix)
    is_lacking = newest not in {cell.run for cell in mine}
    before = [cell for cell in older.cells if cell.name == name] if older is not None else []
    alike = (cell.jobs for cell in (*mine, *before) if cell.matrix == shown.matrix)
    lacks = frozenset[str]().union(*alike) - shown.jobs
    return BoardCell(
        cell=shown,
        others=len(mine) - 1,
        is_superseded=shown.run < newest and is_lacking,
        is_stale=oldest is not None and shown.at < oldest,
        other_jobs=lacks,
    )


def _worst(cells: Sequence[ReleaseCell]) -> ReleaseCell:
    """Return the most severe cell; of several the most informative."""
    outcome = worst(cell.outcome for cell in cells if cell.outcome is not None)
    mine = [cell for cell in cells if cell.outcome is outcome] or cells
    return max(mine, key=lambda cell: (cell.counts.collected, cell.run))
