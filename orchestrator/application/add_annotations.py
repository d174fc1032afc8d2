"""Stores annotations of a run, and publishes the run's reports again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.application.context import Context
from orchestrator.application.describe_run import evidence_of, find_run
from orchestrator.domain.annotation import Annotation, check_annotations, unsaid
from orchestrator.domain.cell import RunState
from orchestrator.domain.copied_fields import extended
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.ingested import RunAnnotation
from orchestrator.domain.lint_findings import CheckedAnnotation
from orchestrator.domain.run_record import Evidence

MOST_OF_A_RUN = 1000
logger = logging.getLogger(__name__)


class TooManyAnnotationsError(ValueError):
    """The run has the maximum number of annotations; nothing was stored."""


@dataclass(frozen=True, slots=True)
class AddedAnnotations:
    """Result of storing annotations."""

    items: tuple[CheckedAnnotation, ...]
    """The given annotations as they are stored."""
    added: int
    """Number of annotations that are new."""


def add_annotations(
    context: Context, run_id: str, written: Sequence[Annotation]
) -> AddedAnnotations:
    """Store the annotations, each once; publish a finished run's reports again.

    Raises:
        RunMissingError: There is no such run.
        InvalidDocumentError: One of the annotations is invalid; nothing is stored.
        TooManyAnnotationsError: The run would have too many.
    """
    find_run(context.stores, run_id)
    cells = [cell.name for cell in context.stores.cells.of_run(run_id)]
    problems = list(check_annotations(written, cells))
    if problems:
        raise InvalidDocumentError("the annotations", problems)
    with context.locks.of(run_id):
        known = context.stores.annotations.of_run(run_id)
        fresh = unsaid(written, known, at=context.clock.now())
        if len(known) + len(fresh) > MOST_OF_A_RUN:
            raise TooManyAnnotationsError(
                f"run {run_id} has {len(known)} annotations, and can have {MOST_OF_A_RUN}"
            )
        context.stores.annotations.add(run_id, fresh)
        evidence = evidence_of(context.stores, run_id, at=context.clock.now())
        if evidence.record.run.state is RunState.FINISHED:
            _publish_again(context, evidence)
    return AddedAnnotations(_meant(context, evidence, written), len(fresh))


def annotations_of(context: Context, run_id: str) -> tuple[CheckedAnnotation, ...]:
    """Return every annotation of the run, checked against the results. Raises RunMissingError."""
    evidence = evidence_of(context.stores, run_id, at=context.clock.now())
    return _checked(context, evidence, evidence.record.annotations)


def _meant(
    context: Context, evidence: Evidence, written: Sequence[Annotation]
) -> tuple[CheckedAnnotation, ...]:
    """Return the stored and checked annotations that equal the given ones, each once."""
    stored = evidence.record.annotations
    chosen = [next(kept for kept in stored if one.stated(kept.at) == kept) for one in written]
    return _checked(context, evidence, tuple(dict.fromkeys(chosen)))


def _checked(
    context: Context, evidence: Evidence, annotations: Sequence[RunAnnotation]
) -> tuple[CheckedAnnotation, ...]:
    return tuple(
        extended(CheckedAnnotation, one, doubts=context.doubt(one, evidence)) for one in annotations
    )


def _publish_again(context: Context, evidence: Evidence) -> None:
    """Publish the reports again.

    A failure is only logged, since reports can be rendered at any time.
    """
    run_id = evidence.record.run.id
    try:
        context.publish(evidence)
    except Exception as error:
        logger.exception("run %s: its reports could not be written again", run_id)
        context.stores.run_events.add(run_id, "report", {"notice": f"not published: {error}"})
    else:
        context.stores.run_events.add(run_id, "report", {"published": True})
