"""The run, the cell or the product that an address names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.dashboard.forms import Form
from orchestrator.dashboard.responses import PageMissingError, PageRequest
from orchestrator.domain.cell import Cell, Run

_RUN = re.compile(r"[0-9A-Za-z-]{1,64}")


def run_of(page_request: PageRequest, name: str) -> Run:
    """Return the run of an id, a prefix of one, or ``latest``. Raises PageMissingError."""
    runs = page_request.context.stores.runs
    found = runs.get(name) if _RUN.fullmatch(name) else None
    if found is not None:
        return found
    matches = runs.find(name) if _RUN.fullmatch(name) else ()
    if len(matches) > 1:
        raise PageMissingError(
            f"{name!r} is the beginning of {', '.join(matches)}: write more of it"
        )
    found = runs.get(matches[0]) if matches else None
    if found is None:
        raise PageMissingError(f"there is no run {name!r}; /runs lists them")
    return found


def cell_of(page_request: PageRequest, run: Run, name: str) -> Cell:
    """Return a run's cell by its name. Raises PageMissingError."""
    cells = page_request.context.stores.cells.of_run(run.id)
    found = next((cell for cell in cells if cell.name == name), None)
    if found is None:
        names = ", ".join(cell.name for cell in cells)
        raise PageMissingError(f"run {run.id} has no cell {name!r}; it has {names}")
    return found


def products(page_request: PageRequest) -> Sequence[str]:
    """Return every product that has runs; the one of the newest run first."""
    return page_request.context.stores.releases.products()


def chosen_product(page_request: PageRequest) -> str:
    """Return the product in the address, or else the newest run's; empty without any run.

    Raises PageMissingError for a product without runs.
    """
    return of_products(page_request, products(page_request))


def of_products(page_request: PageRequest, known: Sequence[str]) -> str:
    """Return the product in the address, else the first of `known`. Raises PageMissingError."""
    named = page_request.query.get("product", "")
    if named and named not in known:
        some = ", ".join(known[:20]) or "none yet"
        raise PageMissingError(f"no run of a product {named!r} is stored; there is: {some}")
    return named or (known[0] if known else "")


def product_of(page_request: PageRequest, form: Form, known: Sequence[str]) -> str:
    """Return the product of a rejected form, or of the address."""
    written = form.value("product")
    return written if form.is_refused and written in known else of_products(page_request, known)
