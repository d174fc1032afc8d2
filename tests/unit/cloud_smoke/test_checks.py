"""What the smoke makes of a finished cell."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cloud_smoke.checks import Seen, boot_s, of_cell
from tests.cloud_smoke.clouds import Times
from tests.cloud_smoke.driving import worst_usd

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "ssh-ed25519 AAAAC3Nza"


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).isoformat()


CELL: dict[str, Any] = {
    "id": "aws",
    "outcome": "passed",
    "reason": "",
    "detail": "",
    "transitions": [
        {"to_state": "placing", "at": at(0)}, {"to_state": "booting", "at": at(4)},
        {"to_state": "preparing", "at": at(64)}, {"to_state": "running", "at": at(80)},
    ],
    "jobs": [
        {
            "checks": [
                {"name": "metadata-guarded", "outcome": "passed", "value": "without: 401"},
                {"name": "device-computes", "outcome": "passed", "value": "A10G"},
            ],
        },
    ],
    "attestation": {
        "simulated": False,
        "mismatch": "",
        "torch": "2.9",
        "facts": {"instance_id": "i-1"},
        "devices": [{"name": "NVIDIA A10G", "uuid": "GPU-1", "driver": "580"}],
    },
    "leases": [
        {
            "machine_id": "us-east-1/i-1", "image_id": "ami-1", "image_name": "dlami",
            "seconds": 130.0, "cost_usd": "0.0123",
        },
    ],
}  # fmt: skip
SEEN = Seen(pinned=f"{KEY} x", offered=(KEY,), times=Times(T0, T0 + timedelta(seconds=120)))


def verdicts(cell: dict[str, Any], seen: Seen = SEEN) -> dict[str, str]:
    return {check.name: check.verdict for check in of_cell("aws", cell, seen)}


def test_a_good_cell_has_every_check_ok() -> None:
    found = verdicts(CELL)
    assert set(found.values()) == {"ok"}
    assert len(found) == 10
    assert boot_s(CELL) == 60


Spoil = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("name", "spoil", "verdict"),
    [
        ("cell", lambda c: c.update(outcome="errored"), "FAILED"),
        ("boot", lambda c: c["transitions"].pop(2), "FAILED"),
        ("image", lambda c: c["leases"][0].update(image_id=""), "FAILED"),
        ("metadata-guarded", lambda c: c["jobs"][0]["checks"][0].update(outcome="failed"),
         "FAILED"),
        ("metadata-guarded",
         lambda c: c["jobs"][0]["checks"][0].update(outcome="skipped", reason="none"),
         "not shown"),
        ("device-computes", lambda c: c["jobs"][0]["checks"].pop(), "not shown"),
        ("attestation", lambda c: c.update(attestation=None), "FAILED"),
        ("attestation", lambda c: c["attestation"].update(simulated=True), "not shown"),
        ("attestation", lambda c: c["attestation"].update(mismatch="L4"), "FAILED"),
        ("attestation", lambda c: c["attestation"].update(devices=[]), "FAILED"),
        ("bill", lambda c: c["leases"][0].update(seconds=100.0), "FAILED"),
        ("bill", lambda c: c["leases"][0].update(seconds=300.0), "FAILED"),
        ("bill", lambda c: c["leases"][0].update(machine_id=""), "not shown"),
        ("image", lambda c: c["leases"].clear(), "FAILED"),
    ],
)  # fmt: skip
def test_each_fault_is_told_as_what_it_is(name: str, spoil: Spoil, verdict: str) -> None:
    cell = copy.deepcopy(CELL)
    spoil(cell)
    assert verdicts(cell)[name] == verdict


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (Seen(pinned=KEY, offered=("ssh-ed25519 BBBB",)), "FAILED"),
        (Seen(pinned=KEY, offered=()), "not shown"),
        (Seen(), "not shown"),
    ],
)
def test_another_host_key_is_a_failure(seen: Seen, verdict: str) -> None:
    assert verdicts(CELL, seen)["host-key"] == verdict


def test_times_that_a_provider_does_not_tell_are_not_shown() -> None:
    assert verdicts(CELL, Seen(times=Times(T0, None, "no end")))["bill"] == "not shown"


@pytest.mark.parametrize(
    ("hourly", "worst", "expected"),
    [
        (["0.60", "0.30"], "0.501", "0.61"),  # 0.501 + 0.60 * 10 min, never rounded down
        (["0.60", None], "0.50", "None"),
        (["0.60"], None, "None"),
        ([], "0.50", "None"),
    ],
)
def test_the_price_that_is_told_is_the_worst(
    hourly: list[str | None], worst: str | None, expected: str
) -> None:
    places = [{"usd_per_hour": each} for each in hourly]
    plan = {"cells": [{"cell": {"id": "aws"}, "places": places, "worst_usd": worst}]}
    assert str(worst_usd(plan, "aws", kill_minutes=10)) == expected
