"""Runs on rented machines, as a controller shows them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.unit.cli import runs
from tests.unit.cli.runs import Json, at


def lease(**given: Any) -> Json:
    plain: Json = {
        "attempt": 1, "provider": "aws", "place": "us-east-1a/spot",
        "machine_id": "us-east-1/i-0abc", "address": "ubuntu@203.0.113.7:22", "state": "gone",
        "price_usd_per_hour": "0.4521",
        "seconds": 1000.2, "billed_s": 1001, "instance_type": "g5.xlarge", "market": "spot",
        "region": "us-east-1", "zone": "us-east-1a", "image_id": "ami-0123",
        "image_name": "Deep Learning OSS Nvidia Driver AMI", "priced": "spot history of 2026-03-01",
        "refusal": "", "simulated": False, "cost_usd": "0.1305",
        "bill": bill("0.1257", "0.0034", "0.0014"),
    }  # fmt: skip
    return plain | given


def bill(machine: str, disk: str = "0", address: str = "0") -> Json:
    total = sum(map(Decimal, (machine, disk, address)), Decimal(0))
    parts = {"machine_usd": machine, "disk_usd": disk, "address_usd": address}
    return parts | {"total_usd": str(total)}


def decision(seconds: float, verdict: str, place: str, reason: str = "", detail: str = "") -> Json:
    return {
        "at": at(seconds), "attempt": 1, "place": place, "result": verdict, "reason": reason,
        "detail": detail,
    }  # fmt: skip


def attestation(**given: Any) -> Json:
    device = {
        "vendor": "nvidia",
        "name": "NVIDIA A10G",
        "uuid": "GPU-5f1c",
        "compute_capability": "8.6",
        "driver": "580.65.06",
    }
    plain: Json = {
        "facts": {"instance_id": "i-0abc"},
        "devices": [device],
        "torch": "2.13.0+cu130",
        "simulated": False,
        "mismatch": "",
    }
    return plain | given


def a10g(state: str = "done", **given: Any) -> Json:
    """A cell that two places refused."""
    full = "InsufficientInstanceCapacity: we have no g5.xlarge in us-east-1b; try another zone"
    plain: Json = {
        "outcome": "passed",
        "jobs": [runs.passed("moe")],
        "leases": [
            lease(place="us-east-1b/spot", machine_id="", refusal=f"capacity: {full}"),
            lease(),
        ],
        "decisions": [
            decision(1, "refused", "us-east-1b/spot", "capacity", full),
            decision(2, "skipped", "us-east-1b/on-demand", "capacity", "as said at us-east-1b"),
            decision(3, "chosen", "us-east-1a/spot", "", "$0.4521 an hour"),
        ],
        "attestation": attestation(),
        "cost_usd": "0.1305",
    }
    return runs.cell("aws-a10g", state, **(plain | given))


def simulated() -> Json:
    told = attestation(devices=[], simulated=True, torch="2.13.0+cpu")
    leases = [lease(simulated=True)]
    return a10g(simulated=True, attestation=told, leases=leases)


def kept() -> Json:
    """A cell whose machine waits for a person."""
    return a10g(
        state="releasing", outcome=None, kept_until=at(1800), leases=[lease(state="active")]
    )


def sight(name: str, **given: Any) -> Json:
    plain: Json = {
        "provider": "aws", "id": name, "kind": "machine", "state": "ready", "ownership": "orphan",
        "run": runs.RUN_ID, "cell": "aws-a10g", "attempt": "a", "token": "t", "controller": "c",
        "expires_at": at(3600), "first_seen": at(0), "ends_after": at(1200), "detail": "",
        "facts": {}, "simulated": False,
    }  # fmt: skip
    return plain | given


def costs() -> Json:
    """The bill of a run of two cells."""
    aws = {
        "cell": "aws-a10g", "platform": "aws-a10g", "provider": "aws", "simulated": False,
        "seconds": 1000.2, "bill": bill("0.1257", "0.0034", "0.0014"), "machines": [lease()],
        "phases": {}, "jobs": {}, "overhead_usd": "0.0305", "validated_tests": 48,
        "usd_per_validated_test": "0.002719",
    }  # fmt: skip
    gcp = aws | {"cell": "gcp-l4", "simulated": True, "bill": bill("1.0000"), "machines": []}
    return {
        "run": runs.RUN_ID,
        "state": "finished",
        "outcome": "passed",
        "as_of": at(9),
        "settled": True,
        "simulated": True,
        "max_usd": "4.00",
        "bill": bill("1.1257", "0.0034", "0.0014"),
        "platforms": [aws, gcp],
        "phases": {"booting": "0.1", "running": "1.0305"},
        "jobs": {"moe": "1.1"},
        "overhead_usd": "0.0305",
        "validated_tests": 96,
        "usd_per_validated_test": "0.011776",
    }


def spent() -> Json:
    """What the last days came to."""
    fake = {"provider": "aws", "machines": 3, "seconds": 3000.0, "bill": bill("1.2345")}
    total = {
        "run": runs.RUN_ID,
        "matrix": "release",
        "created_at": at(0),
        "outcome": "failed",
        "total_usd": "1.2345",
    }
    return {
        "since": at(0), "until": at(9), "bill": bill("1.2345"), "simulated_usd": "0.5",
        "providers": [fake], "runs": [total],
        "budgets": [{
            "budget": {"period": "day", "limit_usd": "20"},
            "settled_usd": "15.5", "reserved_usd": "1",
        }],
    }  # fmt: skip


def headroom(room: str, **given: Any) -> Json:
    quota = {"provider": "aws", "code": "L-3819A6DF", "name": "G/VT spot", "scope": "us-east-1"}
    quota |= {"unit": "vCPU"}
    level = {"limit": 8, "used": 4, "why_unknown": ""}
    return {"quota": quota, "level": level, "needed": 8, "status": room} | given
