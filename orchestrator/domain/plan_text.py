"""Sentences of a launch plan, for pages and terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from orchestrator.domain.machine import ProviderTraits
from orchestrator.domain.units import plural, price, usd


def totals(cells: int, jobs: int, worst_usd: Decimal | None, max_usd: Decimal | None) -> str:
    """Return the number of cells and jobs, and the maximum cost.

    ``5 cells, 25 jobs, at most $4.02 an attempt (limit $12.00)``; a cost of None is unknown.
    """
    limit = f" (limit {usd(max_usd)})" if max_usd is not None else ""
    cost = "free" if worst_usd == 0 else f"at most {usd(worst_usd)} an attempt{limit}"
    return f"{plural(cells, 'cell')}, {plural(jobs, 'job')}, {cost}"


def limit_warning(known_usd: Decimal, max_usd: Decimal | None) -> str:
    """Return a warning where `limits.max_usd` is too low for one attempt of every cell.

    Else empty.
    """
    if max_usd is None or known_usd <= max_usd:
        return ""
    return (
        f"limits.max_usd of {usd(max_usd)} does not cover one attempt of every cell"
        f" ({usd(known_usd)}): what does not fit when its turn comes is not rented"
    )


def cautions(providers: Iterable[str], traits: Mapping[str, ProviderTraits]) -> list[str]:
    """Return the cautions of the plan's providers."""
    named = sorted({name for name in providers if name in traits and traits[name].caution})
    return [f"{name}: {traits[name].caution}" for name in named]


def free_of(limit: int | None, used: int | None) -> str:
    """Return how much of a quota is free: ``4 of 16``, or ``unknown``."""
    if limit is None or used is None:
        return "unknown"
    return f"{max(0, limit - used)} of {limit}"


def hourly(total_usd: Decimal | None) -> str:
    """Return the price of a place: ``$1.006/h``, ``free`` or ``price unknown``."""
    if total_usd is None:
        return "price unknown"
    return f"{price(total_usd)}/h" if total_usd else "free"
