"""The real logs of an L4 as evidence, read by hand: what the linter is held against."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.domain.event_facts import CheckFact, MetricFact, TestFact
from orchestrator.domain.ingested import Ingested, Source, SourceState
from orchestrator.domain.matrix import Accelerator, Platform
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.parsed_results import Provenance
from orchestrator.domain.run_record import Evidence
from tests.unit.reports.builders import L4, Jobs, cell_of, evidence_of, probe

LOGS = Path(__file__).resolve().parents[2] / "golden" / "logs" / "gcp_l4_v046"
_TEST = re.compile(r"^(tests/\S+::\S+) (PASSED|SKIPPED|FAILED)", re.MULTILINE)
_DEMO = re.compile(r"^  \[PASS\] (\w+)$|^Demo \d: (.+)$", re.MULTILINE)
_STAMP = re.compile(r"(KernelPyTorch) v(\d+\.\d+\.\d+)")
_AT = datetime(2026, 1, 19, tzinfo=UTC)


def text(name: str) -> str:
    return (LOGS / name).read_text("utf-8")


def tests_of(job: str, name: str) -> list[TestFact]:
    found = _TEST.findall(text(name))
    return [TestFact(job, node, TestOutcome[word], final=True) for node, word in found]


def checks_of(job: str, name: str) -> list[CheckFact]:
    return [CheckFact(job, a or b, "passed") for a, b in _DEMO.findall(text(name))]


def fp8_ratios(job: str) -> list[MetricFact]:
    lines = re.findall(r"^\s+(\d+)\s+\d+\s+(\d+)\s+[\d.]+\s+[\d.]+\s+([\d.]+)x$",
                       text("fp8_demo.txt"), re.MULTILINE)  # fmt: skip
    return [
        MetricFact(i, job, "speed-up", (float(x),), "x", "higher", {"in": size, "batch": batch})
        for i, (size, batch, x) in enumerate(lines)
    ]


def throughput(job: str) -> list[MetricFact]:
    lines = re.findall(r"size (\d+): ([\d.]+)ms/batch, ([\d.]+)K", text("moe_benchmark.txt"))
    found = []
    for i, (hidden, ms, kilo) in enumerate(lines):
        params = {"hidden": hidden}
        found.append(MetricFact(2 * i, job, "time", (float(ms),), "ms", "lower", params))
        rate = (float(kilo) * 1e3,)
        found.append(MetricFact(2 * i + 1, job, "rate", rate, "tokens/s", "higher", params))
    return found


def source(name: str, state: SourceState = SourceState.READ, **figures: int) -> Source:
    raw = (LOGS / name).read_bytes()
    stamps = tuple(dict.fromkeys(f"{n} {v}" for n, v in _STAMP.findall(raw.decode("utf-8"))))
    return Source(
        name=name, digest="0" * 64, size_bytes=len(raw), state=state,
        provenance=Provenance.PARSED_TEXT, stamps=stamps, **figures,
    )  # fmt: skip


def l4_run() -> Evidence:
    """One cell with everything that the logs say."""
    jobs = Jobs()
    for job, title, name in (
        ("nvidia-backend", "NVIDIA Backend", "nvidia_backend.txt"),
        ("moe", "MoE Tests", "moe_tests.txt"),
    ):
        jobs.suite(job, title, tests_of(job, name), Outcome.PASSED)
    fp8 = tests_of("fp8", "fp8_tests.txt")
    for job, title in (("fp8-native", "FP8 Native"), ("fp8-training", "FP8 Training")):
        module = f"test_{job.replace('-', '_')}.py"
        tests = [replace(test, job=job) for test in fp8 if module in test.nodeid]
        jobs.suite(job, title, tests, Outcome.PASSED)
    jobs.command("moe-demo", "demo", "MoE Demo", checks=checks_of("moe-demo", "moe_demo.txt"))
    jobs.command(
        "fp8-demo", "demo", "FP8 Native Demo", checks=checks_of("fp8-demo", "fp8_demo.txt"),
        metrics=fp8_ratios("fp8-demo"),
    )  # fmt: skip
    fell = re.search(r"FlexAttention failed: .*", text("flex_attention_demo.txt"))
    jobs.command(
        "flex-attention-demo", "demo", "FlexAttention Demo", degraded=fell[0] if fell else None,
        checks=checks_of("flex-attention-demo", "flex_attention_demo.txt"),
    )  # fmt: skip
    jobs.command("moe-benchmark", "benchmark", "MoE Benchmark", metrics=throughput("moe-benchmark"))
    known = source("fp8_tests.txt", announced=71, named=len(fp8), summed=71)
    sources = [source(n) for n in ("fp8_demo.txt", "flex_attention_demo.txt", "moe_demo.txt")]
    cell = cell_of(
        Platform(
            id="gcp-l4", provider="gcp", instance_type="g2-standard-4",
            accelerator=Accelerator(vendor="nvidia", name="L4"),
        ),
        jobs, Outcome.PASSED, probed={**probe(L4, torch="2.7.1+cu128"), "python": "3.10.12"},
        ingested=Ingested(
            fingerprint="0" * 64, ingested_at=_AT, dated_at=_AT, sources=(known, *sources)
        ),
    )  # fmt: skip
    return evidence_of((cell, jobs), outcome=Outcome.PASSED)


def counts(evidence: Evidence) -> Counts:
    return evidence.record.cells[0].counts
