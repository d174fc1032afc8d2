"""What the emulated clouds refuse with, and what accounts have of each quota: one table.

``cloud_facts.csv`` has a row for each: `kind` is where a refusal comes (at the `call`, or in the
`operation` that it began) or what a quota is of; `value` is the HTTP status, the gRPC code or the
limit. `exact` says that the text is the cloud's own, word for word, by its source; elsewhere the
code is the cloud's and the sentence is near it, so that a client must go by the code.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """A refusal, or a quota."""

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
