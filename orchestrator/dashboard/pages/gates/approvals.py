"""The approvals of a gate with their evidence, and whether each counts."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.application.sign_off import idle_remark
from orchestrator.dashboard import urls
from orchestrator.dashboard.table import Column, Moment, Row, Table, Text
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import StoredVerdict

SHOWN = 20
_COLUMNS = (
    Column("by", "Approved by"),
    Column("at", "When"),
    Column("evidence", "Evidence"),
    Column("remark", "Remark"),
)


def approval_table(approvals: Sequence[Approval], read: StoredVerdict | None) -> Table:
    """Return approvals, newest first, each with the reason why it does not count, if any."""
    return Table(
        id="approvals",
        caption="Approvals, newest first",
        columns=_COLUMNS,
        rows=[_row(one, read) for one in approvals[::-1][:SHOWN]],
        empty="Nobody has approved anything.",
        total=len(approvals),
        is_caption_hidden=True,
    )


def _row(one: Approval, read: StoredVerdict | None) -> Row:
    if read is None or read.verdict.evidence_digest != one.evidence:
        evidence, remark = Text("of other evidence", note=one.evidence[:12]), ""
    else:
        evidence = Text(f"of {read.id}", urls.verdict_url(read.id), note=one.evidence[:12])
        remark = idle_remark(read, one.by)
    said = f"It counts for nothing: {remark}." if remark else ""
    return Row((Text(one.by), Moment(one.at), evidence, Text(said)))
