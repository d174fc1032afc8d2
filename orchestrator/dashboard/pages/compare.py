"""The page that compares two runs or two platforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Response

from orchestrator.application.benchmarks import deltas_of
from orchestrator.application.compare_cells import (
    CellPair,
    bases_of,
    other_stack,
    pair_cells,
    silent_of,
    traits_of,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.pages.compare_tables import (
    EACH,
    PERFORMANCE,
    RunComparison,
    cells_table,
    environment_table,
    packages_table,
    place_notes,
    sections,
    speeds_of,
)
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    cell_of,
    run_of,
)
from orchestrator.dashboard.table import Table
from orchestrator.domain.cell import Cell, Run, SubjectBuild, build_difference
from orchestrator.domain.compare_tests import Difference
from orchestrator.domain.units import utc

CHOICES = 40
"""Maximum number of runs in a selection list."""
TEMPLATE = "compare.html.j2"

router = APIRouter()


@router.get(urls.COMPARE)
def show_comparison(
    request: PageRequestDep,
    a: str = "",
    b: str = "",
    cell_a: str = "",
    cell_b: str = "",
    what: str = "",
    skip: int = 0,
) -> Response:
    """Show the changes between two runs; without two runs, show the runs to choose from."""
    if what and what not in (*Difference, PERFORMANCE):
        valid = ", ".join((*Difference, PERFORMANCE))
        raise PageMissingError(f"unknown filter {what!r}: use one of {valid}")
    runs = {name: run_of(request, name) for name in dict.fromkeys((a, b)) if name}
    chosen = ComparedRuns(request, runs.get(a), runs.get(b), cell_a, cell_b)
    if chosen.before is None or chosen.after is None:
        return request.answer(_choosing(chosen))
    contrast = contrast_of(chosen, chosen.before, chosen.after)
    return request.answer(_comparing(chosen, contrast, what, max(skip, 0)))


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The selected runs and cells; None if nothing is selected."""

    asked: PageRequest
    before: Run | None
    after: Run | None
    cell_a: str
    cell_b: str

    @property
    def swapped(self) -> str:
        """URL of the comparison with both runs exchanged."""
        sides = {"a": self.after, "b": self.before}
        named = {name: run.id if run else "" for name, run in sides.items()}
        return self.asked.here(**named, cell_a=self.cell_b, cell_b=self.cell_a, what="", skip="")

    def options(self) -> Sequence[tuple[str, str]]:
        """The runs of the selection lists: the newest ones and the selected ones."""
        newest, _ = self.asked.context.stores.runs.page(limit=CHOICES, before=None)
        runs = {run.id: run for run in newest}
        runs |= {run.id: run for run in (self.before, self.after) if run is not None}
        ordered = sorted(runs.values(), key=lambda run: run.id, reverse=True)
        return [(run.id, run_words(run)) for run in ordered]

    def suggestions(self) -> Sequence[tuple[str, str, str]]:
        """Return runs to compare with: (URL, title, time)."""
        run = self.after or self.before
        if run is None:
            return []
        previous, passed = bases_of(self.asked.context.stores, run)
        named = (
            ("The run before, of the same matrix", previous),
            ("The last one that passed", passed),
        )
        return [
            (urls.compare_url(base.id, run.id), words, run_words(base))
            for words, base in named
            if base is not None
        ]


def run_words(run: Run) -> str:
    """Return a run's subject, matrix, outcome and time as one line."""
    told = (
        f"{run.subject_name} {run.subject_version}".strip(),
        run.matrix_name,
        (run.outcome or run.state).replace("_", " "),
        utc(run.created_at),
    )
    return visible(cut(" · ".join(told), 160))


def _choosing(chosen: ComparedRuns) -> Page:
    facts = _facts(chosen) | {"contrast": None, "names": ((), ())}
    return Page(template=TEMPLATE, title="Compare", facts=facts, section=urls.COMPARE)


def _facts(chosen: ComparedRuns) -> dict[str, object]:
    options = chosen.options()
    before, after = chosen.before, chosen.after
    is_fresh = before is None and after is None and bool(options)
    return {
        "chosen": chosen,
        "options": options,
        "suggested": options[0][0] if is_fresh else "",
        "suggestions": chosen.suggestions(),
    }


def _comparing(chosen: ComparedRuns, contrast: RunComparison, what: str, skip: int) -> Page:
    places = environment_table(chosen.asked, contrast)
    packages = packages_table(chosen.asked, contrast)
    cells = cells_table(chosen.asked, contrast)
    kinds = sections(chosen.asked, contrast, what=what, skip=skip)
    speeds = speeds_of(chosen.asked, contrast, what=what, skip=skip)
    tables: list[Table] = [
        places,
        packages,
        cells,
        *(section.table for section in kinds),
        speeds.table,
    ]
    facts = _facts(chosen) | {
        "contrast": contrast,
        "names": contrast.names,
        "places": places,
        "packages": packages,
        "said": place_notes(contrast),
        "cells": cells,
        "kinds": kinds,
        "speeds": speeds,
        "what": what,
        "is_all": bool(chosen.asked.query.get("all")),
    }
    return Page(
        template=TEMPLATE,
        title=contrast.title,
        tables=tables,
        facts=facts,
        data={"a": contrast.before.id, "b": contrast.after.id},
        section=urls.COMPARE,
    )


def contrast_of(chosen: ComparedRuns, before: Run, after: Run) -> RunComparison:
    """Return both runs with their cells and their differences."""
    stores = chosen.asked.context.stores
    cells = stores.cells.of_run(before.id), stores.cells.of_run(after.id)
    facing = _facing(chosen, before, after, *cells)
    pairs = [pair for one in facing if (pair := one.pair) is not None]
    older, newer = stores.runs.spec(before.id), stores.runs.spec(after.id)
    product, other = newer.manifest.name, older.manifest.name
    told = stores.differences.surroundings([cell for pair in pairs for cell in pair])
    traits = traits_of(facing, told, after.subject_name)
    seen = stores.differences.overview(pairs, product=product, each=EACH)
    return RunComparison(
        before=before,
        after=after,
        product=product,
        other_product=other if other != product else "",
        subject_difference=build_difference(
            SubjectBuild.from_run(before, older), SubjectBuild.from_run(after, newer)
        ),
        facing=facing,
        pairs=pairs,
        counts=seen.counts,
        first=seen.first,
        traits=traits,
        silent=silent_of(facing, told),
        deltas=deltas_of(stores, pairs),
        other_stack=other_stack(traits),
        names=(tuple(one.name for one in cells[0]), tuple(one.name for one in cells[1])),
    )


def _facing(
    chosen: ComparedRuns, before: Run, after: Run, old: Sequence[Cell], new: Sequence[Cell]
) -> tuple[CellPair, ...]:
    """Return the pairs of cells to compare: all that match, or the two cells of the URL."""
    if not chosen.cell_a and not chosen.cell_b:
        return pair_cells(chosen.asked.context.stores, old, new)
    one, other = chosen.cell_a or chosen.cell_b, chosen.cell_b or chosen.cell_a
    pair = cell_of(chosen.asked, before, one), cell_of(chosen.asked, after, other)
    return (CellPair(*pair, "chosen"),)
