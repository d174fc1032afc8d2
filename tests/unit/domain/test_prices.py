"""Which prices are believed: the faults that public catalogues were found to have."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.prices import Price, sift

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
    believed, doubtful = sift(given_prices)
    assert sorted([*believed, *(d.price for d in doubtful)], key=repr) == sorted(
        given_prices, key=repr
    )
    return {(d.price.place, d.price.market): d.why for d in doubtful}


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
    assert sift(iter(table)) == (tuple(table), ())


def test_a_spot_price_above_the_price_on_demand_is_doubtful():
    """A100-80GB in us-central1, in a public catalogue: 1.846 on demand, 1.964 spot."""
    found = doubts(price("1.846", "us-central1"), spot("1.964", "us-central1"))
    assert found == {("us-central1", "spot"): "spot is dearer than on-demand (1.846)"}


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-central1-a", "us-central1"),
        ("europe-west12-b", "europe-west12"),
    ],
)
def test_the_spot_price_of_a_zone_is_held_against_its_region(zone: str, region: str):
    assert set(doubts(price("1", region), spot("2", zone))) == {(zone, "spot")}
    assert doubts(price("1", region), spot("0.5", zone)) == {}


def test_a_region_is_not_the_zone_of_one_whose_name_begins_its_own():
    assert doubts(price("1", "europe-west1"), spot("2", "europe-west12-a")) == {}
    assert doubts(price("1", "us-east-1"), spot("2", "us-east-2a")) == {}


def test_the_nearest_price_on_demand_counts():
    local = price("2", "us-west-2-lax-1")
    assert doubts(price("1", "us-west-2"), local, spot("1.5", "us-west-2-lax-1a")) == {}
    assert set(doubts(price("2", "z"), price("1.9", "za"), spot("1.95", "za"))) == {("za", "spot")}


@pytest.mark.parametrize("usd", ["1.006", "1.0060", "1.00604", "1.00596"])
def test_a_spot_price_that_equals_the_one_on_demand_has_no_market_behind_it(usd: str):
    found = doubts(price("1.006"), spot(usd, "us-east-1a"))
    assert list(found) == [("us-east-1a", "spot")]
    assert "there is no market data" in found[("us-east-1a", "spot")]


@pytest.mark.parametrize("usd", ["1.0059", "0.0001"])
def test_a_spot_price_below_it_in_four_decimals_is_believed(usd: str):
    assert doubts(price("1.006"), spot(usd, "us-east-1a")) == {}


def test_cheap_things_are_not_taken_for_equal():
    assert doubts(price("0.00019"), spot("0.00012", "us-east-1a")) == {}


def test_a_spot_price_without_one_on_demand_is_believed():
    assert doubts(spot("0.4")) == {}


def test_a_place_far_off_most_others_sells_another_product():
    """H100: 4.20 in some places and 12.7 in another, where a different contract was mixed in."""
    dear = doubts(price("4.20", "a"), price("4.35", "b"), price("4.50", "c"), price("12.7", "d"))
    assert list(dear) == [("d", "on-demand")]
    assert "which ask 4.20 to 12.7" in dear[("d", "on-demand")]
    cheap = doubts(price("12.7", "a"), price("12.9", "b"), price("13", "c"), price("4.20", "d"))
    assert list(cheap) == [("d", "on-demand")]


def test_one_price_far_too_low_does_not_spoil_the_rest():
    table = [price(str(usd), f"place-{usd}") for usd in (1.006, 1.1, 1.2, 1.5, 0.01)]
    assert list(doubts(*table)) == [("place-0.01", "on-demand")]


def test_where_there_is_no_majority_none_is_believed():
    found = doubts(price("4.20", "a"), price("12.7", "b"))
    assert set(found) == {("a", "on-demand"), ("b", "on-demand")}


def test_a_ratio_of_exactly_the_widest_is_believed():
    assert doubts(price("4", "a"), price("10", "b")) == {}
    assert len(doubts(price("4", "a"), price("10.0001", "b"))) == 2


def test_other_things_other_markets_and_other_providers_are_not_compared():
    others = [
        price("1"),
        price("50", "b", item="p5.48xlarge"),
        price("50", "b", provider="gcp"),
        spot("0.1", "c"),
        spot("0.9", "d"),
    ]
    assert doubts(*others) == {}


@pytest.mark.parametrize("usd", ["0", "0.0000000000", "-1", "NaN", "sNaN", "Infinity", "-Infinity"])
def test_an_empty_price_is_not_nothing(usd: str):
    """p5e stands in a public catalogue without a price; nothing is free of charge."""
    bad = price(usd, "b")
    believed, doubtful = sift([price("1"), price("1.1", "c"), bad, spot("0.4", "b")])
    assert [d.why for d in doubtful] == ["not more than nothing"]
    assert doubtful[0].price is bad
    assert [p.place for p in believed] == ["us-east-1", "c", "b"]


def test_an_empty_price_on_demand_makes_no_spot_price_doubtful():
    assert list(doubts(price("0"), spot("0.4"))) == [("us-east-1", "on-demand")]


def test_an_invented_price_is_found_among_true_ones():
    """A TPU v6e at 700 an hour."""
    table = [price("2.7", "a"), price("2.97", "b"), price("700", "c")]
    assert list(doubts(*table)) == [("c", "on-demand")]


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
    believed, doubtful = sift(table)
    assert len(believed) + len(doubtful) == len(table)
    assert all(one.usd_per_hour > 0 for one in believed)
    assert all(one.why for one in doubtful)
    places = {(p.item, p.place): p for p in believed if p.market == "on-demand"}
    for one in believed:
        beside = places.get((one.item, one.place))
        others = [p for p in table if (p.item, p.place) == (one.item, one.place)]
        if one.market == "spot" and beside and len(others) == 2:
            assert one.usd_per_hour < beside.usd_per_hour
