"""Evidence that was handed in: sound, inconsistent, disputed, hostile; and what people wrote."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failure_signature import Failure, failure_groups, signature_of
from orchestrator.domain.ingested import (
    Disagreement,
    Ingested,
    RunAnnotation,
    Source,
    SourceState,
    StatedMachine,
)
from orchestrator.domain.known_issue import IssueMatch, IssueState, IssueUse, KnownIssue
from orchestrator.domain.matrix import Accelerator, Platform
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.parsed_results import Provenance
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, Evidence
from tests.unit.reports.builders import (
    Jobs,
    T,
    cell_of,
    checks,
    evidence_of,
    passing,
    results_of,
    throughput,
)
from tests.unit.reports.hostile_text import EVIL

AT = datetime(2026, 1, 19, tzinfo=UTC)
HANDED_IN = datetime(2026, 2, 3, 9, 30, tzinfo=UTC)
L4_ROW = Platform(
    id="gcp-l4",
    provider="gcp",
    instance_type="g2-standard-4",
    accelerator=Accelerator(vendor="nvidia", name="L4"),
)


def source(name: str, **words: object) -> Source:
    made = Source(
        name=name,
        digest="cd" * 32,
        size_bytes=4321,
        state=SourceState.READ,
        dialect="pytest-text 1",
        provenance=Provenance.PARSED_TEXT,
        confidence=0.9,
        jobs=("moe",),
    )
    return replace(made, **words)


def ingested(*sources: Source, **words: object) -> Ingested:
    made = Ingested(
        fingerprint="ef" * 32,
        ingested_at=HANDED_IN,
        dated_at=AT,
        is_dated=True,
        sources=sources,
    )
    return replace(made, **words)


def files(told: Ingested) -> tuple[ArtifactRecord, ...]:
    return tuple(ArtifactRecord(s.name, s.size_bytes, s.digest) for s in told.sources)


def failing(n: int) -> list[TestFact]:
    text = "src/moe/router.py:31: in route\nE   ValueError: bad capacity 17"
    return [
        replace(fact, text=text)
        for fact in results_of(
            "moe",
            [(f"tests/test_moe.py::TestRouter::test_{i}", T.FAILED) for i in range(n)],
            message="ValueError: bad capacity 17",
        )
    ]


def l4_jobs() -> Jobs:
    tests = [*passing("moe", 40, module="tests/test_moe.py::TestMoE"), *failing(6)]
    jobs = Jobs().suite("moe", "MoE Tests", tests, Outcome.FAILED, "tests")
    counted = replace(jobs.records[0], unnamed=Counts(passed=3, missing=2))
    jobs.records[0] = replace(counted, counts=counted.counts + counted.unnamed)
    jobs.command(
        "flex", "demo", "FlexAttention Demo", checks=checks("flex", 9), degraded="fell back"
    )
    jobs.command("bench", "benchmark", "MoE Throughput", metrics=throughput("bench", scale=1.79))
    return jobs


def l4() -> tuple[CellRecord, Jobs]:
    jobs = l4_jobs()
    told = ingested(
        source("moe_tests.txt", named=46, announced=51, summed=46, state=SourceState.INCONSISTENT,
               remarks=("51 tests were announced, and 46 are summed up",)),
        source("flex.txt", dialect="demo-marks 1", jobs=("flex",), stamps=("KernelPyTorch 0.4.4",),
               remarks=("a fallback: FlexAttention failed", "says KernelPyTorch 0.4.4")),
        source("again.xml", dialect="junit-xml 1", provenance=Provenance.STRUCTURED, named=40),
        source("core", dialect="", provenance=None, state=SourceState.KEPT, jobs=()),
        disagreements=(
            Disagreement(
                job="moe",
                nodeid="tests/test_moe.py::TestRouter::test_0",
                sources=(("moe_tests.txt", "failed"), ("again.xml", "passed")),
            ),
        ),
        repeated=40,
        machine=StatedMachine(place="us-west1-a", instance_type="g2-standard-4"),
    )  # fmt: skip
    cell = cell_of(
        L4_ROW, jobs, Outcome.FAILED, "tests", detail="moe: 6 failed",
        probed={"torch": "2.7.1+cu128", "machine": {"devices": [{"name": "NVIDIA L4"}]}},
        ingested=told, artifacts=files(told),
    )  # fmt: skip
    return cell, jobs


def typed() -> tuple[CellRecord, Jobs]:
    jobs = Jobs().suite("moe", "MoE Tests", [], Outcome.PASSED)
    jobs.records[0] = replace(
        jobs.records[0], counts=Counts(passed=48), unnamed=Counts(passed=48), duration_s=None
    )
    jobs.command("bench", "benchmark", "MoE Throughput", metrics=throughput("bench"))
    typed_from = source(
        "transcription.yaml",
        dialect="transcription 1",
        provenance=Provenance.TRANSCRIBED,
        named=None,
    )
    cell = cell_of(
        Platform(id="aws-a10g", provider="aws", instance_type="g5.xlarge"), jobs, Outcome.PASSED,
        probed={"machine": {"devices": [{"name": "NVIDIA A10G"}]}},
        ingested=ingested(typed_from, is_dated=False, dated_at=HANDED_IN),
    )  # fmt: skip
    return cell, jobs


def annotation(kind: str, text: str, **words: object) -> RunAnnotation:
    return RunAnnotation(kind=kind, text=text, author="R. Reviewer", at=AT, **words)


def handed_in(*annotations: RunAnnotation, signed: bool = True) -> Evidence:
    """Two platforms from files, with signatures and a known issue."""
    made = evidence_of(l4(), typed(), outcome=Outcome.FAILED, subject="KernelPyTorch")
    record = replace(made.record, annotations=annotations)
    if signed:
        found = [
            Failure(s, t.nodeid, t.job, "run-0001", "gcp-l4", "gcp-l4", "0.4.40", AT)
            for t in made.tests["gcp-l4"]
            if (s := signature_of(t)) is not None
        ]
        issue = KnownIssue(
            id="KI-0001", product="KernelPyTorch",
            title="capacity | of `routers`", match=IssueMatch(exception="ValueError"),
            owner="moe", opened=date(2026, 1, 1), expires=date(2026, 6, 1), url="https://e.example/1",
        )  # fmt: skip
        gathered = tuple(replace(c, known_issues=("KI-0001",)) for c in failure_groups(found))
        use = IssueUse(issue, IssueState.APPLIES, count=6)
        record = replace(record, failure_groups=gathered, known_issues=(use,))
    return replace(made, record=record)


def hostile_words() -> tuple[RunAnnotation, ...]:
    """What people write may be as evil as what machines say."""
    kinds = ("narrative", "fix", "recommendation", "known-issue", "note", "conclusion")
    made = []
    for index, word in enumerate(EVIL):
        kind = kinds[index % len(kinds)]
        lines = f"- {word}\n{word}\n\n    {word}\n`{word}` **{word}**\n````\n{word}\n```"
        made.append(
            annotation(
                kind,
                lines,
                title=word,
                files=(word,),
                problem=word,
                commit=word,
                before=f"{lines}\n`````",
                after=lines,
                cell="gcp-l4" if index % 2 else "",
            )
        )
    return tuple(made)
