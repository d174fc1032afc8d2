"""Refreshes prices from the providers, and stores plausible ones."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.domain.machine import ProviderError
from orchestrator.domain.prices import Price, Prices, Refreshed, UncertainPrice, sift


def refresh_prices(context: Context) -> Refreshed:
    """Read prices from every provider. An implausible price is reported and not stored."""
    kept: list[Price] = []
    uncertain: list[UncertainPrice] = []
    unread: dict[str, str] = {}
    for name in sorted(context.traits):
        try:
            provider = context.provider(name)
            read = tuple(provider.read_prices()) if isinstance(provider, Prices) else ()
        except ProviderError as error:
            unread[name] = str(error)
            continue
        believed, doubted = sift(read)
        context.stores.prices.write(believed)
        kept += believed
        uncertain += doubted
    return Refreshed(tuple(kept), tuple(uncertain), unread)


def known_prices(context: Context) -> tuple[Price, ...]:
    """Return the prices in use: shipped tables, overridden by refreshed prices."""
    found: list[Price] = []
    for name in sorted(context.traits):
        if context.traits[name].rented:
            found += _known(context, name)
    return tuple(found)


def _known(context: Context, name: str) -> tuple[Price, ...]:
    """Return one provider's prices; none if it is not configured."""
    try:
        provider = context.provider(name)
        return tuple(provider.known_prices()) if isinstance(provider, Prices) else ()
    except ProviderError:
        return ()
