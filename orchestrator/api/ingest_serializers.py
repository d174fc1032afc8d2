"""From an ingested cell to what is answered: pure functions."""

from __future__ import annotations

from orchestrator.api.ingest_responses import (
    DisagreementResponse,
    IngestedResponse,
    IngestResponse,
    SourceResponse,
    StatedMachineResponse,
    ToldOtherwiseResponse,
)
from orchestrator.application.describe_run import find_run
from orchestrator.application.ingest_artifacts import IngestAnswer
from orchestrator.application.ports.stores import Stores
from orchestrator.domain.ingested import Disagreement, Ingested, Source, StatedMachine


def tell_answer(stores: Stores, answer: IngestAnswer) -> IngestResponse:
    """What a client is told that handed something in."""
    run = find_run(stores, answer.run_id)
    cell = next(one for one in stores.cells.of_run(run.id) if one.name == answer.cell)
    return IngestResponse(
        run=run.id,
        cell=cell.name,
        state=run.state,
        outcome=cell.outcome,
        replayed=answer.replayed,
        ingested=tell_ingested(stores.ingests.of_run(run.id)[cell.id]),
    )


def tell_ingested(ingested: Ingested) -> IngestedResponse:
    """Where a cell's evidence is from."""
    return IngestedResponse(
        provenance=ingested.provenance,
        ingested_at=ingested.ingested_at,
        dated_at=ingested.dated_at,
        is_dated=ingested.is_dated,
        sources=[_source(source) for source in ingested.sources],
        disagreements=[_disagreement(one) for one in ingested.disagreements],
        repeated=ingested.repeated,
        machine=_machine(ingested.machine) if ingested.machine else None,
    )


def _source(source: Source) -> SourceResponse:
    return SourceResponse(
        name=source.name,
        sha256=source.digest,
        size_bytes=source.size_bytes,
        state=source.state,
        dialect=source.dialect,
        provenance=source.provenance,
        confidence=source.confidence,
        jobs=list(source.jobs),
        announced=source.announced,
        named=source.named,
        summed=source.summed,
        stamps=list(source.stamps),
        remarks=list(source.remarks),
    )


def _disagreement(one: Disagreement) -> DisagreementResponse:
    told = [ToldOtherwiseResponse(source=name, outcome=word) for name, word in one.sources]
    return DisagreementResponse(job=one.job, nodeid=one.nodeid, sources=told)


def _machine(machine: StatedMachine) -> StatedMachineResponse:
    return StatedMachineResponse(
        place=machine.place,
        instance_type=machine.instance_type,
        market=machine.market,
        seconds=machine.seconds,
        usd_per_hour=machine.usd_per_hour,
        priced=machine.priced,
        machine_id=machine.machine_id,
    )
