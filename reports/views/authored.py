"""What people wrote for a report, each with what the results say to it."""

from __future__ import annotations

from orchestrator.domain.ingested import RunAnnotation
from orchestrator.domain.lint_findings import Doubt
from orchestrator.domain.run_record import Evidence
from reports.model.authored import Authored
from reports.rules.authored import check_annotation


def authored_of(evidence: Evidence, cell: str = "") -> tuple[Authored, ...]:
    """The annotations about one cell; about the run and every cell of it without a name."""
    told = evidence.record.annotations
    return tuple(_checked(s, evidence) for s in told if not cell or s.cell == cell)


def _checked(said: RunAnnotation, evidence: Evidence) -> Authored:
    return Authored(
        kind=said.kind,
        title=said.title,
        text=said.text,
        author=said.author,
        at=said.at,
        cell=said.cell,
        files=said.files,
        problem=said.problem,
        before=said.before,
        after=said.after,
        commit=said.commit,
        doubts=doubts_of(said, evidence),
    )


def doubts_of(said: RunAnnotation, evidence: Evidence) -> tuple[Doubt, ...]:
    """What the results say against it."""
    return tuple(Doubt(f.level, f.message) for f in check_annotation(said, evidence))
