"""Tests by their names: what sets them apart first, where they are beside it."""

from __future__ import annotations

from orchestrator.dashboard import urls
from orchestrator.dashboard.table import Text
from orchestrator.domain.alias import KnownTest
from orchestrator.domain.identity import split_nodeid


def name_cell(test: KnownTest, *beside: str) -> Text:
    """A test in a table; `beside` stands after its file and its job."""
    path = split_nodeid(test.nodeid)[0]
    note = " · ".join(part for part in (path, test.job, *beside) if part)
    return Text(test.nodeid, urls.test_url(test.id), note=note, short=short_name(test.nodeid))


def short_name(nodeid: str) -> str:
    """A node id without its file."""
    path = split_nodeid(nodeid)[0]
    return nodeid.removeprefix(path).removeprefix("::") or nodeid
