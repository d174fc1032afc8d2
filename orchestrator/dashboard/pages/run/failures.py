"""What is known of a run's failures: kinds, known issues, quarantines, and who broke them."""

from __future__ import annotations

from orchestrator.dashboard import urls
from orchestrator.dashboard.table import Badge, Column, Moment, Number, Row, Table, Text
from orchestrator.domain.run_record import RunRecord
from orchestrator.domain.signature import Cluster

SHOWN = 40
"""Rows of each table on the page; its other formats have all of them."""
_CLUSTERS = (
    Column("signature", "Failure"),
    Column("results", "Results", is_number=True),
    Column("tests", "Tests", is_number=True),
    Column("cells", "Cells"),
    Column("first_seen", "First seen"),
    Column("known", "Known"),
)
_DIAGNOSED = (
    Column("test", "Test"),
    Column("cell", "Cell"),
    Column("answer", "Root cause"),
    Column("evidence", "Why"),
    Column("tried", "Tried"),
)
_KNOWN = (
    Column("issue", "Known issue"),
    Column("state", "State"),
    Column("results", "Results", is_number=True),
    Column("about", "About"),
    Column("owner", "Owner"),
)
_QUARANTINED = (
    Column("test", "Test"),
    Column("cell", "Cell"),
    Column("quarantine", "Quarantine"),
    Column("state", "State"),
)


def cluster_table(record: RunRecord, most: int | None = None) -> Table:
    """The failures by signature, the largest first."""
    return Table(
        id="failures",
        caption="Failure groups",
        columns=_CLUSTERS,
        rows=[_cluster_row(one) for one in record.clusters[:most]],
        total=len(record.clusters),
        empty="Nothing failed so far.",
        is_caption_hidden=True,
    )


def _cluster_row(cluster: Cluster) -> Row:
    known = ", ".join(cluster.known_issues)
    tolerated = f"{cluster.tolerated} of {cluster.count} tolerated" if known else ""
    signature = cluster.signature
    return Row(
        (
            Text(
                f"{signature.exception or 'failure'}: {signature.message}",
                urls.signature_url(signature.id),
                note=" · ".join(part for part in (signature.frame, signature.id) if part),
            ),
            Number(cluster.count),
            Number(len(cluster.tests)),
            Text(", ".join(cluster.cells)),
            Moment(cluster.first_seen),
            Text(known or "not known", urls.KNOWN_ISSUES if known else "", note=tolerated),
        ),
        tone="" if known else "bad",
    )


def diagnosis_table(record: RunRecord, most: int | None = None) -> Table:
    """Who broke the failing tests that ran again."""
    rows = [
        Row(
            (
                Text(one.nodeid or one.job, note=one.job if one.nodeid else ""),
                Text(one.cell, urls.cell_url(record.run.id, one.cell)),
                Badge(one.answer),
                Text(one.sentence),
                Text(one.tried),
            )
        )
        for one in record.diagnosed[:most]
    ]
    return Table(
        id="diagnosed",
        caption="Root cause",
        columns=_DIAGNOSED,
        rows=rows,
        total=len(record.diagnosed),
        is_caption_hidden=True,
    )


def known_table(record: RunRecord) -> Table:
    """The product's known issues that failures of the run fit, expired ones too."""
    rows = [
        Row(
            (
                Text(use.issue.id, urls.KNOWN_ISSUES),
                Badge(use.state),
                Number(use.count),
                Text(use.issue.title),
                Text(use.issue.owner),
            )
        )
        for use in record.known_issues
        if use.count
    ]
    return Table(
        id="known_issues",
        caption="Known issues that match failures of the run",
        columns=_KNOWN,
        rows=rows,
        is_caption_hidden=True,
    )


def quarantine_table(record: RunRecord, most: int | None = None) -> Table:
    """Failing results whose tests are in quarantine; they are failures in every count."""
    rows = [
        Row(
            (
                Text(one.nodeid, note=one.job),
                Text(one.cell, urls.cell_url(record.run.id, one.cell)),
                Text(one.quarantine.id, urls.FLAKY, note=one.quarantine.reason),
                Badge(one.state),
            )
        )
        for one in record.quarantined[:most]
    ]
    return Table(
        id="quarantined",
        caption="Failing results of tests in quarantine",
        columns=_QUARANTINED,
        rows=rows,
        total=len(record.quarantined),
        is_caption_hidden=True,
    )
