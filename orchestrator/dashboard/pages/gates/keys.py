"""The table of signing keys."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.dashboard.labels import age
from orchestrator.dashboard.responses import PageRequest
from orchestrator.dashboard.table import Badge, Column, Fact, FoldedFacts, Moment, Row, Table
from orchestrator.domain.gate.signing_key import PublicKey

SHOWN = 50
_SOON = timedelta(days=30)
_KEYS = (
    Column("key", "Key"),
    Column("state", "State"),
    Column("made", "Created"),
    Column("ends", "Ends"),
    Column("retired", "Retired"),
)


def key_table(request: PageRequest) -> Table:
    """Return the table of signing keys, the newest first."""
    keys = request.context.stores.gates.signing_keys()
    return Table(
        id="signing",
        caption="Keys that verdicts are signed with",
        columns=_KEYS,
        rows=[_key(request, one) for one in reversed(keys)][:SHOWN],
        empty="No verdict was signed yet: a key is made when the first one is.",
        total=len(keys),
        is_caption_hidden=True,
    )


def _key(request: PageRequest, key: PublicKey) -> Row:
    ends = key.ends_at
    is_over = ends is not None and request.now >= ends
    state = "retired" if key.retired_at else "expired" if is_over else "active"
    is_soon = ends is not None and not is_over and ends - request.now < _SOON
    note = f"ends in {age(request.now, ends)}" if ends is not None and is_soon else ""
    return Row(
        (
            FoldedFacts(key.id[:16], (Fact("id", key.id), Fact("public", key.public))),
            Badge(state, note=note),
            Moment(key.created_at),
            Moment(key.not_after),
            Moment(key.retired_at),
        ),
        tone="warn" if is_soon else "",
    )
