"""All the evidence of the tests by its name, each made once."""

from __future__ import annotations

from functools import cache

from orchestrator.domain.run_record import Evidence
from tests.unit.reports import pairs, stories
from tests.unit.reports.foreign_stories import handed_in

MAKERS = {
    "release": stories.release, "eight": stories.eight, "handed-in": handed_in, "head": pairs.head,
    "swapped": lambda: pairs.swapped(pairs.head()), "itself": pairs.itself,
    "unnamed": pairs.unnamed,
}  # fmt: skip


@cache
def evidence_called(name: str) -> Evidence:
    """A story, or one of several cells or runs."""
    return MAKERS[name]() if name in MAKERS else stories.story(name)
