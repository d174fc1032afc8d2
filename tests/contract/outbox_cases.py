"""What the tests of the outbox put into it, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from orchestrator.domain.channel import (
    Announcement,
    Channel,
    ChannelKind,
    ChannelSecret,
    Delivery,
    DeliveryReceipt,
    DeliveryResult,
    LineageState,
)
from orchestrator.store.stores import Stores
from tests.databases import NOW, after

SHA = "a" * 40
LAST = NOW + timedelta(days=400)


def ids(prefix: str = "d") -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers):04d}"


def told(
    state: str,
    key: str,
    *,
    lineage: str = "nightly",
    evaluated_at: datetime | None = None,
    **facts: str,
) -> Announcement:
    return Announcement(
        lineage=lineage,
        state=LineageState(state),
        title=f"{lineage} {state}",
        text="why",
        url="",
        at=NOW,
        key=key,
        evaluated_at=evaluated_at,
        facts=facts,
    )


def channel(number: int = 1, kind: ChannelKind = ChannelKind.WEBHOOK, **more: object) -> Channel:
    target = "acme/lib" if kind is ChannelKind.GITHUB else "https://hooks.example/x"
    return replace(
        Channel(
            id=f"c-{number}",
            name=f"channel {number}",
            kind=kind,
            target=target,
            created_at=after(number),
            secrets=(ChannelSecret("whsec_b25l"),),
        ),
        **more,
    )


def receipt(result: str, **more: object) -> DeliveryReceipt:
    return replace(
        DeliveryReceipt(result=DeliveryResult(result), response_excerpt="HTTP 500", status=500),
        **more,
    )


def putting(stores: Stores) -> Callable[..., bool]:
    """Announces a state under a key; whether it was news."""
    new_id = ids()

    def put(state: str, key: str, *, at: datetime = NOW, **more: Any) -> bool:
        return stores.outbox.put(told(state, key, **more), new_id=new_id, at=at)

    return put


def claimed(stores: Stores, *, at: datetime = LAST, **more: object) -> Delivery | None:
    found = stores.outbox.claim(at=at, **more)
    return found[1] if found else None


def sent(stores: Stores, *, at: datetime = LAST) -> list[str]:
    """Deliver everything that is due; what was told, in its order."""
    said = []
    while (delivery := claimed(stores, at=at)) is not None:
        said.append(delivery.news.announcement.key)
        stores.outbox.settle(delivery.id, receipt("accepted"), at=at)
    return said
