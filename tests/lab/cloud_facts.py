"""What the emulated clouds refuse with, what accounts have, and how long calls take: one table.

``cloud_facts.csv`` has a row for each: `kind` is where a refusal comes (at the `call`, or in the
`operation` that it began), what a quota is of, `silent` for a place that does not answer, or
`duration` or `rate`; `value` is the HTTP status, the gRPC code, the limit, the seconds or the
Mbit/s. Rows of `machine`
are of machines in any cloud. `exact` says that the text is the cloud's own, word for word, by its
source; elsewhere the code is the cloud's and the sentence is near it, so that a client must go by
the code.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FASTER = 60
"""So much faster than a real cloud's is the clock that the lab's clouds go by."""


@dataclass(frozen=True, slots=True)
class Row:
    """A refusal, a quota or a duration."""

    cloud: str
    kind: str
    code: str
    value: int
    text: str
    exact: bool
    source: str
    read: str
    """When the source was read, ``2026-11-21``."""


@cache
def table() -> tuple[Row, ...]:
    """Every row."""
    path = Path(__file__).with_name("cloud_facts.csv")
    with path.open(newline="", encoding="utf-8") as lines:
        return tuple(
            Row(**{**row, "value": int(row["value"]), "exact": row["exact"] == "yes"})
            for row in csv.DictReader(lines)
        )


def rows(cloud: str, kind: str) -> dict[str, Row]:
    """The rows of a cloud and kind, by code, in their order."""
    return {row.code: row for row in table() if (row.cloud, row.kind) == (cloud, kind)}


def uplink_mbit_s() -> int:
    """How fast the lab sends to its machines, in Mbit/s of its own clock."""
    return rows("machine", "rate")["uplink"].value * FASTER


def durations(cloud: str) -> dict[str, float]:
    """How long each step takes in the lab, in seconds of its own clock, by name."""
    return {step: row.value / FASTER for step, row in rows(cloud, "duration").items()}
