"""Whose results a page is about."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.dashboard.responses import Asked, PageMissingError


def products(asked: Asked) -> Sequence[str]:
    """Every product that was ever run; the one of the newest run first."""
    return asked.context.stores.releases.products()


def chosen_product(asked: Asked) -> str:
    """The product that the address names, or else the newest run's; empty where nothing ran.

    Raises PageMissingError where it names one that never ran.
    """
    return of_products(asked, products(asked))


def of_products(asked: Asked, known: Sequence[str]) -> str:
    """The same, for a page that has asked for the products already."""
    named = asked.query.get("product", "")
    if named and named not in known:
        some = ", ".join(known[:20]) or "none yet"
        raise PageMissingError(f"no run of a product {named!r} is stored; there is: {some}")
    return named or (known[0] if known else "")
