"""The versions of a gate's policy: which is shown, and what changed between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.application.ports.gates import StoredPolicy
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.policy_text import Changed, Listing, diff_of, lines_of
from orchestrator.dashboard.responses import Asked, PageMissingError
from orchestrator.dashboard.table import Column, Moment, Row, Several, Table, Text

SHOWN = 50
_COLUMNS = (
    Column("version", "Version"),
    Column("since", "Since"),
    Column("by", "Uploaded by"),
    Column("look", "Look at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The version that is looked at."""

    shown: StoredPolicy
    is_present: bool
    since: Moment
    listing: Listing
    versions: Table
    other: StoredPolicy | None
    """The one that it is compared with."""
    diff: list[Changed] | None
    """None where nothing is compared, or the texts are too long."""
    names: Sequence[tuple[str, str]]
    """(digest, words) of what can be compared."""


def policy_facts(asked: Asked, present: StoredPolicy) -> PolicyFacts:
    """As the address asks for it. Raises PageMissingError."""
    history = asked.context.stores.gates.policy_history(present.gate)
    shown = _version(history, asked.query.get("version", "")) or present
    other = _version(history, asked.query.get("against", ""))
    return PolicyFacts(
        shown=shown,
        is_present=shown.digest == present.digest,
        since=Moment(shown.since),
        listing=lines_of(shown.text),
        versions=_table(history, present),
        other=other,
        diff=diff_of(other.text, shown.text) if other else None,
        names=_names(history),
    )


def _version(history: Sequence[StoredPolicy], digest: str) -> StoredPolicy | None:
    if not digest:
        return None
    found = next((one for one in history if one.digest == digest), None)
    if found is None:
        raise PageMissingError(f"the gate never had the policy {digest!r}")
    return found


def _names(history: Sequence[StoredPolicy]) -> list[tuple[str, str]]:
    named = {one.digest: f"{one.since:%Y-%m-%d %H:%M} · {one.digest[:12]}" for one in history}
    return list(named.items())[:SHOWN]


def _table(history: Sequence[StoredPolicy], present: StoredPolicy) -> Table:
    rows = [
        _row(one, history[number + 1] if number + 1 < len(history) else None, number == 0)
        for number, one in enumerate(history[:SHOWN])
    ]
    return Table(
        id="versions",
        caption=f"Versions of the policy of {present.gate}, newest first",
        columns=_COLUMNS,
        rows=rows,
        total=len(history),
        is_caption_hidden=True,
    )


def _row(one: StoredPolicy, before: StoredPolicy | None, is_present: bool) -> Row:
    gate = urls.gate_url(one.gate)
    ways = [Text("its text", urls.with_query(gate, version=one.digest) + "#policy")]
    if before is not None:
        asked = urls.with_query(gate, version=one.digest, against=before.digest)
        ways.append(Text("what it changed", asked + "#policy"))
    return Row(
        (
            Text(one.digest[:12], is_code=True, note="present" if is_present else ""),
            Moment(one.since),
            Text(one.by or "nobody said"),
            Several(ways),
        )
    )
