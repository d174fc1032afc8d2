"""Which parts of a record are answered, and that what is stored of it stays whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import TypeAdapter

import orchestrator.api.described_records  # noqa: F401 - says how the records are answered
from orchestrator.api.models import ListResponse, documented
from orchestrator.cli.errors import NO_VERDICT, exit_code_of
from orchestrator.client.errors import SeatrialError
from orchestrator.client.transport import read, read_items
from orchestrator.domain.copied_fields import extended
from orchestrator.domain.machine import Place
from orchestrator.domain.money import Bill
from orchestrator.domain.schedule import Firing, Resolved
from orchestrator.store.tables import FiringRow, LeaseRow

PLACE = Place("here", price_usd_per_hour=Decimal("1E+1"), options={"disk": "big"})


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs."""

    usd: Decimal
    """The price of it."""
    note: str = ""

    @property
    def cents(self) -> Decimal:
        """The same in cents."""
        return self.usd * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CostToday(Cost):
    """The same on a day."""

    day: str
    """As in 2026-01-20."""


documented(Cost, CostToday, derived=["cents"], without=["note"])


def answered(value: object) -> object:
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def test_money_is_plain_text_and_properties_are_answered_as_fields_are() -> None:
    told = answered(Cost(Decimal("1E+1"), note="kept to ourselves"))
    assert told == {"usd": "10", "cents": "1000"}
    assert answered(ListResponse[Bill](items=[Bill(Decimal("0E-9"))])) == {
        "items": [
            {
                "machine_usd": "0.000000000",
                "disk_usd": "0",
                "address_usd": "0",
                "total_usd": "0.000000000",
            }
        ]
    }


def test_a_subclass_has_the_descriptions_of_its_parent() -> None:
    schema = TypeAdapter(CostToday).json_schema(mode="serialization")
    said = {name: found.get("description") for name, found in schema["properties"].items()}
    assert said == {
        "usd": "The price of it.",
        "day": "As in 2026-01-20.",
        "cents": "The same in cents.",
    }
    assert set(schema["required"]) == {"usd", "day", "cents"}


def test_a_client_reads_what_was_answered_and_leaves_out_what_it_does_not_know() -> None:
    told = json.loads(json.dumps(answered(Cost(Decimal("1.50")))))
    assert read(Cost, told | {"of a newer controller": 1}) == Cost(Decimal("1.50"))
    assert read_items(Cost, {"items": [told]}) == (Cost(Decimal("1.50")),)


@pytest.mark.parametrize("answer", [None, {}, {"usd": "much"}, []])
def test_what_is_no_answer_is_no_verdict(answer: object) -> None:
    with pytest.raises(SeatrialError, match="the controller's answer is not understood") as refused:
        read(Cost, answer)
    assert exit_code_of(refused.value) == NO_VERDICT


def test_what_is_stored_has_every_field_and_no_property() -> None:
    """Whatever is answered of a place, its row has the options that launch exactly there."""
    column = LeaseRow.__table__.c.offer.type
    stored = column.process_bind_param(PLACE, None)
    assert "usd_per_hour" not in json.loads(stored)
    assert column.process_result_value(stored, None) == PLACE


def test_a_stored_firing_keeps_the_matrix_that_is_not_answered() -> None:
    at = datetime(2026, 1, 20, tzinfo=UTC)
    resolved = Resolved(matrix={"kind": "Matrix"}, known={"version": "1.0"})
    firing = Firing(schedule="nightly", due_at=at, claimed_at=at, resolved=resolved)
    told = answered(firing)
    assert isinstance(told, dict)
    assert not told["resolved"].keys() & {"matrix", "known"}
    column = FiringRow.__table__.c.document.type
    stored = column.process_bind_param(firing, None)
    assert column.process_result_value(stored, None) == firing


def test_an_extended_record_keeps_the_fields_of_its_parent() -> None:
    assert extended(CostToday, Cost(Decimal(1), "n"), day="2026-01-20") == CostToday(
        Decimal(1), "n", day="2026-01-20"
    )
    with pytest.raises(TypeError, match="is no record"):
        extended(CostToday, {"usd": 1}, day="2026-01-20")
