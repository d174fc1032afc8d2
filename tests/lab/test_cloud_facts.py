"""The table of refusals and quotas: complete, dated, and understood by the product."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from orchestrator.domain.machine import ProviderUnavailableError
from orchestrator.domain.prices import Prices
from orchestrator.store.database import open_database
from runners import registry
from runners.aws.errors import TABLE as AWS
from runners.google.errors import TABLE as GOOGLE
from runners.provider_context import ProviderContext
from runners.tpu.errors import ApiRefusal, classify, code_name
from tests.lab.cloud_facts import Row, rows, table
from tests.lab.site import put_prices_of_today

NOT_OF_EC2 = {"NoSuchResourceException", "ParameterNotFound"}
"""Refusals of Service Quotas and of Systems Manager, which are handled where these are asked."""
TRANSIENT = {"UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"}


def test_every_row_has_its_source_and_date_and_stands_once() -> None:
    seen = Counter((row.cloud, row.kind, row.code) for row in table())
    assert [key for key, times in seen.items() if times > 1] == []
    for row in table():
        assert row.source, row
        assert date.fromisoformat(row.read) >= date(2026, 1, 1), row


def test_the_table_and_the_product_know_the_same_refusals_of_ec2() -> None:
    assert rows("aws", "call").keys() - NOT_OF_EC2 == AWS.keys()


def test_the_product_knows_each_refusal_of_compute_engine() -> None:
    known = {code.replace("_", "").lower() for code in GOOGLE}
    told = {**rows("gcp", "call"), **rows("gcp", "operation")}.keys() - {"GPUS_ALL_REGIONS"}
    assert {code for code in told if code.replace("_", "").lower() not in known} == set()


@pytest.mark.parametrize(
    "row",
    [*rows("tpu", "call").values(), *rows("tpu", "operation").values()],
    ids=lambda row: f"{row.code}-{row.kind}",
)
def test_the_product_knows_each_refusal_of_cloud_tpu(row: Row) -> None:
    assert code_name(row.value) == row.code
    refusal = classify(ApiRefusal(row.code, row.text, late=row.kind == "operation"))
    assert (refusal.kind is ProviderUnavailableError) is (row.code in TRANSIENT)


def test_every_price_of_a_home_in_the_lab_is_of_today(tmp_path: Path) -> None:
    put_prices_of_today(tmp_path / "home")
    with closing(open_database(f"sqlite:///{tmp_path / 'home' / 'app.db'}")) as database:
        stores, now = database.stores, datetime.now(UTC)
        context = ProviderContext(book=stores.static_hosts, prices=stores.prices)
        for name in ("aws", "gcp", "tpu"):
            known = tuple(cast("Prices", registry.load(name, context)).known_prices())
            assert known
            assert all(now - price.as_of < timedelta(hours=1) for price in known)
