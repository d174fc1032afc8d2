"""What came home from a cell beside its tests."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.run.content import LOUD, Said
from orchestrator.dashboard.table import Badge, Column, Number, Row, Table, Text
from orchestrator.domain.facts import MetricFact
from orchestrator.domain.fingerprint import traits
from orchestrator.domain.run_record import CellRecord
from orchestrator.domain.units import duration, plural, price, size

_METRICS = 100
"""Rows on the page; its other formats have all of them."""
_NOTICES = 20
_PACKAGE = "package "
_CHECKS = (
    Column("check", "Check"),
    Column("job", "Job"),
    Column("outcome", "Outcome"),
    Column("value", "Value"),
    Column("tolerance", "Tolerance"),
    Column("reason", "Reason"),
)
_METRIC_COLUMNS = (
    Column("metric", "Metric"),
    Column("job", "Job"),
    Column("median", "Median", is_number=True),
    Column("unit", "Unit"),
    Column("samples", "Samples", is_number=True),
    Column("better", "Better"),
)
_ARTIFACTS = (
    Column("name", "File"),
    Column("size_bytes", "Size", is_number=True),
    Column("sha256", "sha256"),
)


def check_table(cell: CellRecord) -> Table:
    """Every statement of a job about itself; those that did not pass first."""
    checks = [check for job in cell.jobs for check in job.checks]
    checks.sort(key=lambda check: check.outcome == "passed")
    rows = [
        Row(
            (
                Text(check.name),
                Text(check.job),
                Badge(check.outcome),
                Text(f"{check.value} {check.unit}".strip()),
                Text(check.tolerance),
                Text(check.reason),
            ),
            tone="bad" if check.outcome == "failed" else "",
        )
        for check in checks
    ]
    return Table(id="checks", caption="Checks", columns=_CHECKS, rows=rows, is_caption_hidden=True)


def metric_table(cell: CellRecord, *, whole: bool) -> Table:
    """What was measured."""
    metrics = [metric for job in cell.jobs for metric in job.metrics]
    return Table(
        id="metrics",
        caption="Metrics",
        columns=_METRIC_COLUMNS,
        rows=[_metric(metric) for metric in (metrics if whole else metrics[:_METRICS])],
        total=len(metrics),
        is_caption_hidden=True,
    )


def _metric(metric: MetricFact) -> Row:
    params = ", ".join(f"{name}={value}" for name, value in sorted(metric.params.items()))
    middle = statistics.median(metric.samples) if metric.samples else None
    href = urls.benchmark_url(metric.job, metric.name)
    return Row(
        (
            Text(metric.name, href, note=params),
            Text(metric.job),
            Number(middle),
            Text(metric.unit),
            Number(len(metric.samples)),
            Text(metric.direction),
        )
    )


def artifact_table(run_id: str, cell: CellRecord) -> Table:
    """Files, as they came."""
    rows = [
        Row(
            (
                Text(one.name, urls.artifact_url(run_id, cell.id, one.name), is_code=True),
                Bytes(one.size_bytes),
                Text(one.digest, short=f"{one.digest[:12]}…", is_code=True),
            )
        )
        for one in cell.artifacts
    ]
    return Table(
        id="artifacts", caption="Files", columns=_ARTIFACTS, rows=rows, is_caption_hidden=True
    )


def fact_table(cell: CellRecord) -> Table:
    """The environment, but for its packages; the machine, and who attests it."""
    known = {k: v for k, v in traits(cell.probed).items() if not k.startswith(_PACKAGE)}
    facts = [("environment", cell.environment), *known.items(), *_machine(cell), *_told(cell)]
    rows = [Row((Text(name), Text(value))) for name, value in facts if value]
    columns = (Column("fact", "What"), Column("value", "Value"))
    return Table(
        id="environment",
        caption="Environment and machine",
        columns=columns,
        rows=rows,
        is_caption_hidden=True,
    )


def package_table(cell: CellRecord) -> Table:
    """Every installed package."""
    found = {
        name.removeprefix(_PACKAGE): version
        for name, version in traits(cell.probed).items()
        if name.startswith(_PACKAGE)
    }
    rows = [Row((Text(name), Text(found[name], is_code=True))) for name in sorted(found)]
    columns = (Column("package", "Package"), Column("version", "Version"))
    return Table(
        id="packages", caption="Packages", columns=columns, rows=rows, is_caption_hidden=True
    )


def said_of(cell: CellRecord) -> Sequence[Said]:
    """What a person should know before believing it."""
    found = []
    if cell.simulated:
        found.append(Said("", "warn", "Simulated: no gate accepts this evidence."))
    if cell.attestation is not None and cell.attestation.mismatch:
        found.append(Said("", "bad", cell.attestation.mismatch))
    if cell.ingested is not None:
        how = cell.ingested.provenance.replace("_", " ")
        many = plural(len(cell.ingested.sources), "artifact")
        found.append(Said("", "warn", f"Ingested ({how}, {many}): no agent of ours attests it."))
    newest = cell.notices[-_NOTICES:]
    return [*found, *(Said(x.job, LOUD.get(x.level, "quiet"), x.message) for x in newest)]


def _machine(cell: CellRecord) -> list[tuple[str, str]]:
    held = [lease for lease in cell.leases if lease.machine_id]
    if not held:
        return []
    last = held[-1]
    kind = ", ".join(part for part in (last.instance_type, last.market) if part)
    return [
        ("machine", last.machine_id),
        ("kind", kind),
        ("place", last.place),
        ("image", f"{last.image_id} {last.image_name}".strip()),
        ("price", f"{price(last.price_usd_per_hour)} an hour"),
        ("held", duration(last.seconds)),
    ]


def _told(cell: CellRecord) -> list[tuple[str, str]]:
    if cell.attestation is None:
        return []
    return [
        ("attested device", ", ".join(part for part in (one.name, one.uuid, one.driver) if part))
        for one in cell.attestation.devices
    ]


class Bytes(Number):
    """A size in bytes, which is told in words."""

    def text(self) -> str:
        """``4.2 kB``."""
        return "–" if self.value is None else size(int(self.value))
