"""What a finished cell, its provider and the smoke's own looks prove: pure, one check each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from tests.cloud_smoke.clouds import Times

Verdict = Literal["ok", "FAILED", "not shown"]
Json = Mapping[str, Any]
LATE_S = 120.0
"""How much later than its provider the ledger may see a machine end: it looks, it is not told."""


@dataclass(frozen=True, slots=True)
class Check:
    """One fact: shown, disproved, or not available."""

    cloud: str
    name: str
    verdict: Verdict
    said: str

    def line(self) -> str:
        return f"{self.cloud:4} {self.name:<18} {self.verdict:<9} {self.said}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the smoke saw itself while the cell ran."""

    pinned: str = ""
    """The host key that the controller accepts."""
    offered: tuple[str, ...] = ()
    """What the address presents to whoever asks (`ssh-keyscan`)."""
    times: Times = field(default_factory=lambda: Times(None, None, "the machine never ran"))


def of_cell(cloud: str, cell: Json, seen: Seen) -> list[Check]:
    """Every check of one cell."""
    lease = cell["leases"][-1] if cell["leases"] else {}
    found = [
        _outcome(cell),
        *_times(cell),
        _image(lease),
        _host_key(seen),
        *_on_machine(cell),
        _attestation(cell),
        _bill(lease, seen.times),
    ]
    return [Check(cloud, *each) for each in found]


Found = tuple[str, Verdict, str]


def reached(cell: Json) -> dict[str, datetime]:
    """When the cell first came to each state."""
    found: dict[str, datetime] = {}
    for step in cell["transitions"]:
        found.setdefault(step["to_state"], datetime.fromisoformat(step["at"]))
    return found


def boot_s(cell: Json) -> float | None:
    """Seconds from the grant until the right machine answered over SSH."""
    at = reached(cell)
    if "booting" not in at or "preparing" not in at:
        return None
    return (at["preparing"] - at["booting"]).total_seconds()


def _outcome(cell: Json) -> Found:
    said = f"{cell['outcome']} {cell['reason']} {cell['detail']}".strip()
    return "cell", "ok" if cell["outcome"] == "passed" else "FAILED", said


def _times(cell: Json) -> Iterator[Found]:
    at = reached(cell)
    steps = (("granted", "placing", "booting"), ("boot", "booting", "preparing"))
    for name, begin, end in (*steps, ("ready", "preparing", "running")):
        if begin in at and end in at:
            yield name, "ok", f"{(at[end] - at[begin]).total_seconds():.1f} s"
        else:
            yield name, "FAILED", f"never {end}"


def _image(lease: Json) -> Found:
    if not lease.get("image_id"):
        return "image", "FAILED", "none is recorded"
    return "image", "ok", f"{lease['image_id']} ({lease['image_name'] or 'no name'})"


def _host_key(seen: Seen) -> Found:
    if not seen.pinned or not seen.offered:
        return "host-key", "not shown", "nobody could ask the address while the machine was held"
    if _key(seen.pinned) in map(_key, seen.offered):
        return "host-key", "ok", f"the pinned {seen.pinned.split()[0]} key is the one that answers"
    return "host-key", "FAILED", f"pinned is {seen.pinned}, the address offers {seen.offered}"


def _key(line: str) -> str:
    return " ".join(line.split()[:2])


def _on_machine(cell: Json) -> Iterator[Found]:
    told = {check["name"]: check for job in cell["jobs"] for check in job["checks"]}
    for name in ("metadata-guarded", "device-computes"):
        check = told.get(name)
        if check is None:
            yield name, "not shown", "the job did not come so far"
        elif check["outcome"] == "skipped":
            yield name, "not shown", check["reason"]
        else:
            yield name, "ok" if check["outcome"] == "passed" else "FAILED", check["value"]


def _attestation(cell: Json) -> Found:
    told = cell["attestation"]
    if told is None:
        return "attestation", "FAILED", "there is none"
    if told["simulated"]:
        return "attestation", "not shown", "the provider is an emulation"
    devices = [f"{d['name']} {d['uuid']} driver {d['driver']}" for d in told["devices"]]
    said = f"{', '.join(devices) or 'no device'}; torch {told['torch'] or 'unknown'}"
    if told["mismatch"]:
        return "attestation", "FAILED", f"{told['mismatch']}; {said}"
    complete = bool(devices and told["torch"] and told["facts"].get("instance_id"))
    return "attestation", "ok" if complete else "FAILED", said


def _bill(lease: Json, told: Times) -> Found:
    if not lease or not lease["machine_id"]:
        return "bill", "not shown", "no machine was granted"
    ours = f"{lease['seconds']:.0f} s, {Decimal(lease['cost_usd'])} USD by the ledger"
    if told.began is None or told.ended is None:
        return "bill", "not shown", f"{ours}; {told.why_not}"
    theirs = (told.ended - told.began).total_seconds()
    late = lease["seconds"] - theirs
    good = -5 <= late <= LATE_S
    return "bill", "ok" if good else "FAILED", f"{ours}; {theirs:.0f} s by the provider"
