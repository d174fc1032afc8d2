"""Evidence made in code: each function is one story that a report has to tell truthfully."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from orchestrator.domain.cell import Attempt, Cause, CellState, PlacementResult
from orchestrator.domain.event_facts import CheckFact, MetricFact, Notice, TestFact
from orchestrator.domain.matrix import Accelerator, Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, Evidence
from tests.unit.reports.builders import (
    A10G,
    L4,
    START,
    WHOLE_PATH,
    Jobs,
    T,
    at,
    attestation,
    cell_of,
    checks,
    decision,
    evidence_of,
    lease,
    logs,
    moe_metrics,
    passing,
    path,
    probe,
    ratio,
    results_of,
    sweep,
    throughput,
)  # fmt: skip
from tests.unit.reports.hostile_text import hostile


def local() -> tuple[CellRecord, Jobs]:
    """This computer, without an accelerator: everything passes, two tests are skipped."""
    skipped = results_of(
        "moe",
        [(f"suites/test_moe.py::test_gpu[{i}]", T.SKIPPED) for i in range(2)],
        reason="needs CUDA",
    )
    jobs = Jobs().suite("moe", "MoE Tests", passing("moe", 46) + skipped, Outcome.PASSED)
    jobs.command("moe-demo", "demo", "MoE Demo", checks=checks("moe-demo", 8))
    jobs.command(
        "moe-benchmark", "benchmark", "MoE Benchmark",
        metrics=[*throughput("moe-benchmark", scale=20), ratio("moe-benchmark")],
    )  # fmt: skip
    export = [
        CheckFact("uc1", "outputs match", "passed", "3.1e-07", "max abs diff", "1e-5"),
        CheckFact("uc1", "ONNX export", "skipped", reason="onnx is not installed"),
    ]
    jobs.command("uc1", "use-case", "UC1: Export Pipeline", checks=export)
    own = lease(
        provider="local", place="local", machine_id="local-1", address="this computer",
        price_usd_per_hour=None, cost_usd=Decimal(0),
    )  # fmt: skip
    cell = cell_of(
        Platform(id="local-cpu", provider="local"),
        jobs,
        Outcome.PASSED,
        probed=probe(torch="2.13.0+cpu", cuda=None),
        leases=(own,),
    )
    return cell, jobs


def built_in() -> tuple[CellRecord, Jobs]:
    """The built-in payload on this computer: figures of a benchmark, a use case and a demo."""
    jobs = Jobs().suite("moe", "MoE Tests", passing("moe", 48), Outcome.PASSED)
    spent = MetricFact(1, "moe-demo", "layer/time", (81.5,), "ms", "lower", {})
    jobs.command("moe-demo", "demo", "MoE Demo", checks=checks("moe-demo", 8), metrics=[spent])
    equal = "2.6824523047253024e-07"
    said = [
        CheckFact("b", "moe/512/arms_equal", "passed", equal, "relative", "1e-05"),
        CheckFact("b", "moe/512/all_computed", "passed", "8192", "assignments", "0"),
        CheckFact("b", "moe/512/ratio_floor", "passed", "1.0445831646011845", "x", "0.9"),
        CheckFact("b", "moe/512/path", "passed", "segments|<b>", "", ""),
    ]  # fmt: skip
    jobs.command(
        "moe-throughput", "benchmark", "MoE Throughput (8 experts, top-2)",
        checks=said, metrics=moe_metrics("moe-throughput"),
    )  # fmt: skip
    late = CheckFact("s", "batch_sweep/1/equals", "failed", "1.00001e-05", "relative", "1e-05")
    jobs.command(
        "sweep", "use-case", "UC3: Batch Sweep", Outcome.FAILED, reason="checks",
        checks=[late], metrics=sweep("sweep"),
    )  # fmt: skip
    platform = Platform(id="local-cpu", provider="local")
    probed = probe(torch="2.13.0+cpu", cuda=None)
    return cell_of(platform, jobs, Outcome.FAILED, "checks", probed=probed), jobs


def a10g_jobs() -> Jobs:
    """Ten failures, and a demo with 7 of 8 checks."""
    jobs = Jobs()
    for name, title, n in (
        ("nvidia-backend", "NVIDIA Backend", 66), ("moe", "MoE Tests", 48),
        ("fp8", "FP8 Native", 51),
    ):  # fmt: skip
        jobs.suite(name, title, passing(name, n), Outcome.PASSED)
    failed = results_of(
        "fp8-training",
        [(f"suites/test_fp8_training.py::test_te[{i}-cuda]", T.FAILED) for i in range(10)],
        message="ValidationError: scaling_factor_compute_algo <lambda> | extra fields",
    )
    tests = passing("fp8-training", 10) + failed
    jobs.suite("fp8-training", "FP8 Training", tests, Outcome.FAILED, "tests", detail="10 failed")
    jobs.command("moe-demo", "demo", "MoE Demo", checks=checks("moe-demo", 8))
    jobs.command(
        "fp8-demo", "demo", "FP8 Native Demo", Outcome.FAILED, reason="checks",
        checks=checks("fp8-demo", 8, failed={5: "training failed"}),
    )  # fmt: skip
    jobs.command("moe-benchmark", "benchmark", "MoE Benchmark", metrics=throughput("moe-benchmark"))
    return jobs


def a10g() -> tuple[CellRecord, Jobs]:
    """The seed's A10G."""
    jobs = a10g_jobs()
    cell = cell_of(
        Platform(
            id="aws-a10g",
            provider="aws",
            instance_type="g5.xlarge",
            accelerator=Accelerator(vendor="nvidia", name="A10G"),
        ),
        jobs,
        Outcome.FAILED,
        "tests",
        detail="fp8-training: 10 failed",
        probed=probe(A10G),
        leases=(lease(),),
        decisions=(
            decision(
                1.5,
                PlacementResult.REFUSED,
                "us-east-1b/spot",
                "capacity",
                "InsufficientInstanceCapacity: no g5.xlarge is left in us-east-1b",
            ),
            decision(
                1.7, PlacementResult.SKIPPED, "us-west-2a/spot", "quota", "L-3819A6DF: 4 of 4 used"
            ),
            decision(2.5, PlacementResult.CHOSEN, "us-east-1", "", "$1.006 an hour"),
        ),
        attestation=attestation(A10G),
        notices=(
            Notice(4, START.timestamp() + 66.5, "moe", "warning", "the log was cut at 64 MiB"),
        ),
    )
    return replace(
        cell, artifacts=logs(jobs, "environment.json", "gpu_info.txt", "events.jsonl")
    ), jobs


def l4() -> tuple[CellRecord, Jobs]:
    """Another stack, slower, all passing, with a degraded demo."""
    jobs = Jobs().suite("moe", "MoE Tests", passing("moe", 48), Outcome.PASSED)
    jobs.command(
        "flex-demo", "demo", "FlexAttention Demo", checks=checks("flex-demo", 9),
        degraded="FlexAttention failed: standard attention was used",
    )  # fmt: skip
    jobs.command(
        "moe-benchmark", "benchmark", "MoE Benchmark",
        metrics=[*throughput("moe-benchmark", scale=1.79), ratio("moe-benchmark", None)],
    )  # fmt: skip
    cell = cell_of(
        Platform(
            id="gcp-l4",
            provider="gcp",
            instance_type="g2-standard-4",
            accelerator=Accelerator(vendor="nvidia", name="L4"),
        ),
        jobs,
        Outcome.PASSED,
        probed=probe(L4, torch="2.7.1+cu128"),
        leases=(
            lease(
                provider="gcp",
                place="us-west1-a",
                instance_type="g2-standard-4",
                market="spot",
                price_usd_per_hour=Decimal("0.70"),
                cost_usd=Decimal("0.1301"),
            ),
        ),
    )
    return cell, jobs


def simulated() -> tuple[CellRecord, Jobs]:
    """An A10G was asked for, and an emulation with no accelerator at all came."""
    jobs = Jobs().suite("moe", "MoE Tests", passing("moe", 48), Outcome.PASSED)
    jobs.command("moe-demo", "demo", "MoE Demo", checks=checks("moe-demo", 8))
    cell, _ = a10g()
    made = cell_of(
        cell.platform, jobs, Outcome.PASSED, probed=probe(torch="2.13.0+cpu", cuda=None),
        leases=(replace(lease(), simulated=True),), simulated=True,
        decisions=(decision(2.5, PlacementResult.CHOSEN, "us-east-1", "", "$1.006 an hour"),),
        attestation=attestation(simulated=True),
    )  # fmt: skip
    return made, jobs


def every_test_outcome() -> list[TestFact]:
    """Crashed and hung ones too."""
    file = "suites/test_all.py::"
    return [
        *passing("all", 3, module="suites/test_all.py"),
        *results_of("all", [(f"{file}test_failed", T.FAILED)], message="assert 1 == 2"),
        *results_of(
            "all", [(f"{file}test_xpass_strict", T.FAILED)], message="[XPASS(strict)] known bug"
        ),
        *results_of("all", [(f"{file}test_setup", T.ERROR)], reason="setup", message="no fixture"),
        *results_of(
            "all", [(f"{file}test_crash", T.ERROR)], reason="crashed", message="died of signal 11"
        ),
        *results_of(
            "all", [(f"{file}test_hang", T.ERROR)], reason="hung", message="silent for 600 s"
        ),
        *results_of(
            "all", [(f"{file}test_skip[{i}]", T.SKIPPED) for i in "ab"], reason="needs CUDA"
        ),
        *results_of("all", [(f"{file}test_slow", T.SKIPPED)], reason="slow"),
        *results_of("all", [(f"{file}test_xfail", T.XFAILED)], reason="known bug"),
        *results_of("all", [(f"{file}test_xpass", T.XPASSED)], reason="fixed?"),
        *results_of("all", [(f"{file}test_missing[{i}]", T.MISSING) for i in range(2)]),
        *results_of("all", [(f"{file}test_not_run", T.NOT_RUN)]),
    ]


def every_outcome() -> tuple[CellRecord, Jobs]:
    """Each outcome that a test can have, and jobs that end in their own ways."""
    tests = every_test_outcome()
    jobs = Jobs().suite("all", "Every Outcome", tests, Outcome.FAILED, "tests", detail="2 failed")
    jobs.suite("none", "Nothing Collected", [], Outcome.FAILED, "no_tests", duration_s=0.4)
    jobs.suite("slow", "Out of Time", passing("slow", 2), Outcome.TIMED_OUT, "timeout")
    jobs.command("quiet", "demo", "Says Nothing")
    jobs.command("dead", "demo", "Dies", Outcome.FAILED, reason="crashed")
    cell = cell_of(
        Platform(id="rack-1", provider="static"),
        jobs,
        Outcome.FAILED,
        "tests",
        detail="all: 2 failed",
        probed=probe(A10G) | {"torch_devices": []},
        leases=(
            lease(
                provider="static", place="10.0.0.5:22", price_usd_per_hour=None, cost_usd=Decimal(0)
            ),
        ),
    )
    return cell, jobs


def not_available() -> tuple[CellRecord, Jobs]:
    """Nobody sells it: no machine, no figures."""
    jobs = Jobs().suite("moe", "MoE Tests", [], Outcome.NOT_RUN, "not_offered", started=False)
    jobs.command(
        "moe-demo", "demo", "MoE Demo", Outcome.NOT_RUN, reason="not_offered", started=False
    )
    refused = lease(
        place="us-east-1", machine_id="", address="", price_usd_per_hour=None, seconds=0.0,
        cost_usd=Decimal(0), refusal="not_offered: no instance type has an AMD MI300X",
    )  # fmt: skip
    cell = cell_of(
        Platform(
            id="aws-mi300x",
            provider="aws",
            accelerator=Accelerator(vendor="amd", name="MI300X"),
            optional=True,
        ),
        jobs,
        Outcome.NOT_AVAILABLE,
        "not_offered",
        detail="no instance type has an AMD MI300X",
        transitions=path((1, "placing", 1), (2, "releasing", 1), (3, "done", 1)),
        leases=(refused, replace(refused, place="us-west-2")),
        decisions=(
            decision(
                1.2,
                PlacementResult.REFUSED,
                "aws",
                "not_offered",
                "DescribeInstanceTypeOfferings in us-east-1 and us-west-2 lists no type with an "
                "AMD MI300X",
            ),
        ),
        artifacts=(),
    )
    return cell, jobs


def lost_twice() -> tuple[CellRecord, Jobs]:
    """Two machines were lost: half of a suite came home, the rest never ran."""
    tests = passing("moe", 20)
    rest = results_of("moe", [(f"suites/test_moe.py::test_late_{i}", T.MISSING) for i in range(28)])
    jobs = Jobs().suite("moe", "MoE Tests", tests + rest, Outcome.ERRORED, "lost", duration_s=None)
    jobs.suite("fp8", "FP8 Native", [], Outcome.NOT_RUN, "lost", started=False)
    detail = "the machine stopped answering and its provider does not know it"
    cause = Cause(Outcome.ERRORED, "lost", detail)
    attempts = (
        Attempt("at-1", "cell-1", 1, at(1), cause, Outcome.ERRORED, at(300)),
        Attempt("at-2", "cell-1", 2, at(300), cause, Outcome.ERRORED, at(900)),
    )
    first = (
        (1.0, "placing", 1), (3.0, "booting", 1), (50.0, "preparing", 1), (70.0, "running", 1),
        (280.0, "collecting", 1), (290.0, "releasing", 1), (300.0, "queued", 1),
    )  # fmt: skip
    second = (
        (301.0, "placing", 2), (303.0, "booting", 2), (350.0, "preparing", 2),
        (370.0, "running", 2), (880.0, "collecting", 2), (890.0, "releasing", 2),
        (900.0, "done", 2),
    )  # fmt: skip
    cell = cell_of(
        Platform(id="gcp-spot", provider="gcp", instance_type=("g2-standard-4", "g2-standard-8")),
        jobs,
        Outcome.ERRORED,
        "lost",
        detail=detail,
        attempts=attempts,
        transitions=path(*first, *second),
        probed=probe(L4),
        leases=(
            lease(provider="gcp", place="us-west1-a", seconds=297.0, cost_usd=Decimal("0.083")),
            lease(attempt=2, provider="gcp", place="us-west1-b", machine_id="", seconds=0.0,
                  cost_usd=Decimal(0), refusal="capacity: none left"),
            lease(attempt=2, provider="gcp", place="us-west1-c", seconds=598.0,
                  price_usd_per_hour=None, cost_usd=Decimal(0)),
        ),
        artifacts=(),
    )  # fmt: skip
    return cell, jobs


def running() -> tuple[CellRecord, Jobs]:
    """In the middle: three of five tests reported, nothing judged, the demo still waits."""
    rest = results_of("moe", [(f"suites/test_moe.py::test_late_{i}", T.MISSING) for i in range(2)])
    jobs = Jobs().suite("moe", "MoE Tests", passing("moe", 3) + rest, None, duration_s=None)
    jobs.command("moe-demo", "demo", "MoE Demo", None, started=False)
    cell = cell_of(
        Platform(id="local-cpu", provider="local"),
        jobs,
        None,
        state=CellState.RUNNING,
        attempts=(Attempt("at-1", "cell-1", 1, at(1)),),
        transitions=WHOLE_PATH[:4],
        probed=probe(torch="2.13.0+cpu", cuda=None),
        artifacts=(),
    )
    return cell, jobs


STORIES = {
    "local": (local, Outcome.PASSED),
    "built-in": (built_in, Outcome.FAILED),
    "a10g": (a10g, Outcome.FAILED),
    "l4-degraded": (l4, Outcome.PASSED),
    "simulated": (simulated, Outcome.PASSED),
    "every-outcome": (every_outcome, Outcome.FAILED),
    "not-available": (not_available, Outcome.NOT_AVAILABLE),
    "lost-twice": (lost_twice, Outcome.ERRORED),
    "hostile": (hostile, Outcome.FAILED),
    "running": (running, None),
}
"""By the name of the golden file: one cell each, and the run's outcome."""


def story(name: str) -> Evidence:
    made, outcome = STORIES[name]
    return evidence_of(made(), outcome=outcome)


def release() -> Evidence:
    """The whole matrix of the seed's kind: this computer, two clouds, and what nobody sells."""
    return evidence_of(local(), a10g(), l4(), not_available(), outcome=Outcome.FAILED)


def eight() -> Evidence:
    """Eight platforms."""
    cells = []
    for index in range(8):
        cell, jobs = (a10g, l4, not_available, lost_twice)[index % 4]()
        cells.append((replace(cell, id=f"{cell.id}-{index:02d}"), jobs))
    return evidence_of(*cells, outcome=Outcome.FAILED)
