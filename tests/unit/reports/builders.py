"""What evidence is made of, in code: jobs, tests, probes, leases, cells and runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import (
    Attempt,
    CellState,
    PlacementDecision,
    PlacementResult,
    Run,
    RunState,
    Transition,
)
from orchestrator.domain.event_facts import CheckFact, MetricFact, TestFact
from orchestrator.domain.matrix import Platform
from orchestrator.domain.money import Bill
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.run_record import (
    ArtifactRecord,
    CellRecord,
    Evidence,
    JobRecord,
    LeaseRecord,
    RunRecord,
)

START = datetime(2026, 1, 19, 10, 0, 0, tzinfo=UTC)
T = TestOutcome
A10G = {
    "name": "NVIDIA A10G",
    "uuid": "GPU-7d1c",
    "memory_bytes": 23028 * 1024 * 1024,
    "compute_capability": "8.6",
}
L4 = A10G | {"name": "NVIDIA L4", "uuid": "GPU-44aa", "compute_capability": "8.9"}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def results_of(
    job: str, outcomes: Sequence[tuple[str, TestOutcome]], **words: str
) -> list[TestFact]:
    return [
        TestFact(job, name, outcome, outcome not in (T.MISSING, T.NOT_RUN), 0.01, **words)
        for name, outcome in outcomes
    ]


def passing(job: str, n: int, *, module: str = "") -> list[TestFact]:
    file = module or f"suites/test_{job.replace('-', '_')}.py"
    return results_of(job, [(f"{file}::test_{i:03d}", T.PASSED) for i in range(n)])


@dataclass
class Jobs:
    """The jobs of one cell, with the tests of its suites."""

    records: list[JobRecord] = field(default_factory=list)
    tests: list[TestFact] = field(default_factory=list)

    def suite(
        self,
        name: str,
        title: str,
        tests: Sequence[TestFact],
        outcome: Outcome | None,
        reason: str = "",
        *,
        duration_s: float | None = 12.5,
        started: bool = True,
        detail: str = "",
    ) -> Jobs:
        tally = Counter(t.outcome for t in tests)
        self.records.append(
            JobRecord(
                id=name,
                kind="suite",
                title=title,
                outcome=outcome,
                reason=reason,
                detail=detail,
                counts=Counts.from_tally(tally),
                started_at=at(70) if started else None,
                duration_s=duration_s if started else None,
                timeout_s=600,
            )
        )
        self.tests += tests
        return self

    def command(
        self,
        name: str,
        kind: str,
        title: str,
        outcome: Outcome | None = Outcome.PASSED,
        *,
        reason: str = "",
        checks: Sequence[CheckFact] = (),
        metrics: Sequence[MetricFact] = (),
        degraded: str | None = None,
        started: bool = True,
    ) -> Jobs:
        self.records.append(
            JobRecord(
                id=name,
                kind=kind,
                title=title,
                outcome=outcome,
                reason=reason,
                degraded=degraded,
                checks=tuple(checks),
                metrics=tuple(metrics),
                started_at=at(90) if started else None,
                duration_s=4.2 if started else None,
                timeout_s=600,
            )
        )
        return self


def checks(job: str, n: int, *, failed: Mapping[int, str] | None = None) -> list[CheckFact]:
    failed = failed or {}
    return [
        CheckFact(job, f"demo {i}", "failed" if i in failed else "passed", reason=failed.get(i, ""))
        for i in range(1, n + 1)
    ]


def throughput(job: str, *, scale: float = 1.0, seq: int = 100) -> list[MetricFact]:
    """Times and tokens per second that agree: 32 x 128 tokens."""
    made = []
    for index, (hidden, base) in enumerate(((512, 0.00435), (1024, 0.00774))):
        times = [base * scale * f for f in (1.0, 1.01, 0.99, 1.02, 0.98, 1.005)]
        params: Mapping[str, object] = {
            "hidden": hidden, "batch": 32, "seq": 128, "experts": 8, "top_k": 2,
        }  # fmt: skip
        made.append(
            MetricFact(
                seq + index, job, "time", tuple(t * 1000 for t in times), "ms", "lower", params
            )
        )
        rates = tuple(32 * 128 / t for t in times)
        made.append(MetricFact(seq + index, job, "throughput", rates, "tok/s", "higher", params))
    return made


def ratio(job: str, baseline: str | None = "dense loop over experts") -> MetricFact:
    params: dict[str, object] = {
        "hidden": 512, "batch": 32, "seq": 128, "experts": 8, "top_k": 2,
    }  # fmt: skip
    if baseline is not None:
        params["baseline"] = baseline
    return MetricFact(300, job, "speed-up", (1.79, 1.81, 1.77), "x", "higher", params)


def moe_metrics(job: str) -> list[MetricFact]:
    """What the built-in benchmark reports: the names of its metrics hold a parameter."""
    made = []
    for hidden, n, base in ((512, 28, 249.7), (1024, 7, 1131.5)):
        params = {
            "hidden": hidden, "expert_hidden": 4 * hidden, "experts": 8, "top_k": 2, "batch": 32,
            "sequence": 128, "dtype": "float32", "tokens": 4096, "baseline": "mask_loop",
        }  # fmt: skip
        times = tuple(base * (1 + (i * 7 % 13 - 6) / 40) for i in range(n))
        slow = tuple(t * (1.045 + (i * 5 % 11 - 5) / 50) for i, t in enumerate(times))
        for name, samples, unit, direction in (
            ("tokens_per_s", tuple(4096e3 / t for t in times), "tokens/s", "higher"),
            ("latency", times, "ms", "lower"),
            ("baseline_latency", slow, "ms", "lower"),
            ("ratio", tuple(b / a for a, b in zip(times, slow, strict=True)), "x", "higher"),
        ):
            full = f"moe/{hidden}/{name}"
            made.append(MetricFact(len(made), job, full, samples, unit, direction, params))
    return made


def sweep(job: str) -> list[MetricFact]:
    """What the built-in use case reports."""
    made = []
    for batch, base in ((1, 0.1508), (8, 0.5133), (32, 1.632), (64, 2.346)):
        params = {"batch": batch, "dtype": "float32", "device": "cpu"}
        times = tuple(base * (1 + (i * 7 % 17 - 8) / 100) for i in range(50))
        rates = tuple(1000 * batch / t for t in times)
        name = f"batch_sweep/{batch}"
        made.append(MetricFact(1, job, f"{name}/latency", times, "ms", "lower", params))
        made.append(MetricFact(2, job, f"{name}/throughput", rates, "items/s", "higher", params))
    return made


def probe(
    *devices: Mapping[str, object], torch: str = "2.7.0+cu128", cuda: str | None = "12.8"
) -> dict[str, object]:
    return {
        "python": "3.11.7",
        "python_path": "/opt/python",
        "torch": torch,
        "cuda": cuda,
        "hip": None,
        "xla": None,
        "packages": {"torch": torch, "numpy": "2.4.6", "pytest": "9.2.0", "wheel": "0.40"},
        "machine": {
            "os": "Debian GNU/Linux 12", "kernel": "6.1.0", "machine": "x86_64", "hostname": "host",
            "cpus": 4, "cpu_model": "AMD EPYC 7R32", "memory_bytes": 16_374_562_816,
            "disk_free_bytes": 98_111_222_333,
            "devices": [dict(d) | {"driver": "580.65.06"} for d in devices],
        },
        "torch_devices": [dict(d) for d in devices],
        "separated_user": bool(devices),
        "separated_user_reason": "" if devices else "local: the payload runs as you",
    }  # fmt: skip


def path(*steps: tuple[float, str, int], origin: str = "queued") -> tuple[Transition, ...]:
    made = []
    for seconds, target, attempt in steps:
        made.append(Transition(at(seconds), attempt, origin, target))
        origin = target
    return tuple(made)


WHOLE_PATH = path(
    (1, "placing", 1), (2.5, "booting", 1), (40, "preparing", 1), (65, "running", 1),
    (600, "collecting", 1), (606, "releasing", 1), (640, "done", 1),
)  # fmt: skip


def logs(jobs: Jobs, *more: str) -> tuple[ArtifactRecord, ...]:
    names = [f"{job.id}.txt" for job in jobs.records if job.started_at] + list(more)
    return tuple(
        ArtifactRecord(name, 1000 + 37 * index, f"{index:064x}") for index, name in enumerate(names)
    )


def lease(**changes: object) -> LeaseRecord:
    """A lease whose bill is what its seconds, its price and its cost come to."""
    made = LeaseRecord(
        attempt=1,
        provider="aws",
        place="us-east-1",
        state="gone",
        machine_id="i-0abc",
        address="ubuntu@203.0.113.7",
        price_usd_per_hour=Decimal("1.006"),
        seconds=637.5,
        cost_usd=Decimal("0.1823"),
        priced="table of 2026-01-01",
        instance_type="g5.xlarge",
        market="on-demand",
        region="us-east-1",
        zone="us-east-1a",
    )
    if changes.get("provider", "aws") != "aws":
        made = replace(made, instance_type="", market="", zone="")
    return billed(replace(made, **changes))


def decision(
    seconds: float, result: PlacementResult, place: str, reason: str = "", detail: str = ""
) -> PlacementDecision:
    """A line of the first attempt's log."""
    return PlacementDecision(at(seconds), place, result, reason, detail, attempt=1)


def attestation(*devices: Mapping[str, object], simulated: bool = False) -> Attestation:
    """What an EC2 machine with such devices says."""
    facts = {
        "instance_id": "i-0abc",
        "instance_type": "g5.xlarge",
        "market": "on-demand",
        "zone": "us-east-1a",
        "image_id": "ami-0123",
        "image_name": "Deep Learning OSS Nvidia Driver AMI",
    }
    found = tuple(
        Device("nvidia", str(d["name"]), str(d["uuid"]), str(d["compute_capability"]), "580.65.06")
        for d in devices
    )
    return Attestation(facts, found, "2.7.0+cu128", simulated)


def billed(made: LeaseRecord) -> LeaseRecord:
    """The same with its bill: what its cost has above its seconds is its disk's."""
    whole = math.ceil(made.seconds)
    machine = Decimal(whole) * (made.price_usd_per_hour or 0) / 3600
    machine = min(machine.quantize(Decimal("0.0001")), made.cost_usd)
    phases = {CellState.BOOTING: made.cost_usd / 4, CellState.RUNNING: made.cost_usd * 3 / 4}
    bill = Bill(machine, made.cost_usd - machine)
    return replace(made, bill=bill, billed_s=whole, phase_usd=phases)


def cell_of(
    platform: Platform, jobs: Jobs, outcome: Outcome | None, reason: str = "", **changes: object
) -> CellRecord:
    made = CellRecord(
        id=platform.id,
        platform=platform,
        environment="image",
        state=CellState.DONE,
        entered_at=at(640),
        outcome=outcome,
        reason=reason,
        detail="",
        jobs=tuple(jobs.records),
        attempts=(Attempt("at-1", "cell-1", 1, at(1), None, outcome, at(640)),),
        transitions=WHOLE_PATH,
        leases=(),
        probed={},
        notices=(),
        artifacts=logs(jobs, "environment.json", "events.jsonl"),
    )
    return replace(made, **changes)


def evidence_of(
    *cells: tuple[CellRecord, Jobs], outcome: Outcome | None, subject: str = "torchbridge"
) -> Evidence:
    run = Run(
        id="run-0001",
        matrix_name="release",
        subject_name=subject,
        subject_version="0.4.40",
        payload_digest="ab" * 32,
        created_at=START,
        state=RunState.FINISHED if outcome else RunState.RUNNING,
        outcome=outcome,
        finished_at=at(641) if outcome else None,
    )
    record = RunRecord(run, tuple(cell for cell, _ in cells), as_of=at(700))
    return Evidence(record, {cell.id: tuple(jobs.tests) for cell, jobs in cells})
