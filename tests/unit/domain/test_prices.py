"""Which prices are believed: the faults that public catalogues were found to have."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.prices import Price, partition_plausible

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def price(
    usd: str,
    place: str = "us-east-1",
    market: str = "on-demand",
    *,
    item: str = "g5.xlarge",
    provider: str = "aws",
) -> Price:
    return Price(provider, item, place, market, Decimal(usd), NOW, "table")


def spot(usd: str, place: str = "us-east-1") -> Price:
    return price(usd, place, "spot")


def doubts(*given_prices: Price) -> dict[tuple[str, str], str]:
    believed, uncertain = partition_plausible(given_prices)
    assert sorted([*believed, *(d.price for d in uncertain)], key=repr) == sorted(
        given_prices, key=repr
    )
    return {(d.price.place, d.price.market): d.reason for d in uncertain}


def test_prices_that_break_no_rule_are_believed_in_their_order():
    table = [
        price("1.006"),
        price("1.459", "ap-northeast-1"),
        price("1.5488", "ap-east-1"),
        spot("0.425", "us-east-1a"),
        spot("0.451", "us-east-1b"),
        price("55.04", item="p5.48xlarge"),
        price("0.70683", "us-central1", item="g2-standard-4", provider="gcp"),
    ]
    assert partition_plausible(iter(table)) == (tuple(table), ())


ZONES = {
    "us-east-1a": "us-east-1", "us-west-2-lax-1a": "us-west-2", "us-central1-a": "us-central1",
    "europe-west12-b": "europe-west12",
}  # fmt: skip
EQUAL = ("1.006", "1.0060", "1.00604", "1.00596")
LAX = (price("1", "us-west-2"), price("2", "us-west-2-lax-1"))
H100 = "which ask 4.20 to 12.7"
HOURS = (price("2.7", "a"), price("2.97", "b"))
DOUBTS = [
    # prices, which are doubtful (of which market, if not on demand), why
    ((price("1.846", "c"), spot("1.964", "c")), "c/spot", "spot is dearer than on-demand (1.846)"),
    *(((price("1", place), spot("2", zone)), f"{zone}/spot", "") for zone, place in ZONES.items()),
    *(((price("1", region), spot("0.5", zone)), "", "") for zone, region in ZONES.items()),
    # A region is not the zone of one whose name begins its own.
    ((price("1", "europe-west1"), spot("2", "europe-west12-a")), "", ""),
    ((price("1", "us-east-1"), spot("2", "us-east-2a")), "", ""),
    # The nearest price on demand counts.
    ((*LAX, spot("1.5", "us-west-2-lax-1a")), "", ""),
    ((price("2", "z"), price("1.9", "za"), spot("1.95", "za")), "za/spot", ""),
    # One that equals it has no market behind it; in four decimals.
    *(((price("1.006"), spot(usd, "us-east-1a")), "us-east-1a/spot", "there is no market data")
      for usd in EQUAL),
    *(((price("1.006"), spot(usd, "us-east-1a")), "", "") for usd in ("1.0059", "0.0001")),
    ((price("0.00019"), spot("0.00012", "us-east-1a")), "", ""),
    ((spot("0.4"),), "", ""),
    # H100: 4.20 in some places and 12.7 in another, where a different contract was mixed in.
    ((price("4.20", "a"), price("4.35", "b"), price("4.50", "c"), price("12.7", "d")), "d", H100),
    ((price("12.7", "a"), price("12.9", "b"), price("13", "c"), price("4.20", "d")), "d", ""),
    ((*(price(usd, usd) for usd in ("1.006", "1.1", "1.2", "1.5", "0.01")),), "0.01", ""),
    # Without a majority none is believed; a ratio of exactly the widest is.
    ((price("4.20", "a"), price("12.7", "b")), "a b", ""),
    ((price("4", "a"), price("10", "b")), "", ""),
    ((price("4", "a"), price("10.0001", "b")), "a b", ""),
    # Other things, markets and providers are not compared.
    ((price("1"), price("50", "b", item="p5.48xlarge"), price("50", "b", provider="gcp"),
      spot("0.1", "c"), spot("0.9", "d")), "", ""),
    # An empty price on demand makes no spot price doubtful; a TPU v6e at 700 an hour is invented.
    ((price("0"), spot("0.4")), "us-east-1", ""),
    ((*HOURS, price("700", "c")), "c", ""),
]  # fmt: skip


@pytest.mark.parametrize(("table", "uncertain", "why"), DOUBTS)
def test_which_prices_are_uncertain(table: tuple[Price, ...], uncertain: str, why: str):
    found = doubts(*table)
    named = (place.partition("/") for place in uncertain.split())
    assert set(found) == {(place, market or "on-demand") for place, _, market in named}
    assert all(why in said for said in found.values())


@pytest.mark.parametrize("usd", ["0", "0.0000000000", "-1", "NaN", "sNaN", "Infinity", "-Infinity"])
def test_an_empty_price_is_not_nothing(usd: str):
    """p5e stands in a public catalogue without a price; nothing is free of charge."""
    bad = price(usd, "b")
    believed, uncertain = partition_plausible(
        [price("1"), price("1.1", "c"), bad, spot("0.4", "b")]
    )
    assert [d.reason for d in uncertain] == ["not more than nothing"]
    assert uncertain[0].price is bad
    assert [p.place for p in believed] == ["us-east-1", "c", "b"]


@given(
    st.lists(
        st.builds(
            Price,
            provider=st.just("aws"),
            item=st.sampled_from(["x", "y"]),
            place=st.sampled_from(["us-east-1", "us-east-1a", "us-east-2", ""]),
            market=st.sampled_from(["spot", "on-demand", ""]),
            usd_per_hour=st.decimals() | st.decimals(0, 10, places=4),
            as_of=st.just(NOW),
            source=st.just("table"),
        ),
        max_size=12,
    )
)
def test_every_price_is_either_believed_or_doubtful(table: list[Price]):
    believed, uncertain = partition_plausible(table)
    assert len(believed) + len(uncertain) == len(table)
    assert all(one.usd_per_hour > 0 for one in believed)
    assert all(one.reason for one in uncertain)
    places = {(p.item, p.place): p for p in believed if p.market == "on-demand"}
    for one in believed:
        beside = places.get((one.item, one.place))
        others = [p for p in table if (p.item, p.place) == (one.item, one.place)]
        if one.market == "spot" and beside and len(others) == 2:
            assert one.usd_per_hour < beside.usd_per_hour
