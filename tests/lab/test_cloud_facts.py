"""The table of refusals and quotas: complete, dated, and understood by the product."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from orchestrator.domain.machine import ProviderUnavailableError
from runners.aws.errors import TABLE as AWS
from runners.google.errors import TABLE as GOOGLE
from runners.tpu.errors import ApiRefusal, classify, code_name
from tests.lab.cloud_facts import Row, rows, table

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
