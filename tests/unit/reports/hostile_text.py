"""A cell whose every text wants to be more than text."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import PlacementResult
from orchestrator.domain.event_facts import CheckFact, MetricFact, Notice, TestFact
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import ArtifactRecord, CellRecord
from tests.unit.reports.builders import (
    A10G,
    Jobs,
    T,
    cell_of,
    decision,
    lease,
    probe,
    results_of,
)

EVIL = (
    "a|b", "new\nline", "`tick`", "``", "<script>alert(1)</script>", "</td><img src=x onerror=y>",
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07bell", "emoji 🚢 ⚓", "\\", "\\|", "a\\", "|" * 7,
    "[click](https://example.com)", "![img](https://example.com/x.png)", "**bold** _it_ __init__",
    "&lt;b&gt; &#60;", "\u202egnp.exe", "---", "# heading", "1. list", "~~~", "```", "\x00nul",
    "x" * 2000, "{{ 7*7 }}", "{% raw %}", "\ud800", "tab\there", "\u2028sep", "<!-- c -->", "$x$",
)  # fmt: skip


def hostile() -> tuple[CellRecord, Jobs]:
    """Names that want to be more than names, and two thousand parametrised ones."""
    tests: list[TestFact] = []
    for index, word in enumerate(EVIL):
        name = f"suites/test_x.py::test_x[{word}]"
        tests += results_of("x", [(name, T.FAILED)], message=word, reason=word)
        tests += results_of("x", [(f"{name}-s{index}", T.SKIPPED)], reason=word)
    many = [(f"suites/test_x.py::test_many[{i}|<{i}>]", T.FAILED) for i in range(2000)]
    tests += results_of("x", many, message="assert |")
    jobs = Jobs().suite("x", "Hostile | `Suite` <b>", tests, Outcome.FAILED, "tests")
    said = [CheckFact("d", w, "failed", w, w, w, w) for w in EVIL]
    metrics = [
        MetricFact(i, "d", w, (1.5, 2.5), w, "higher", {w: w, "k|": i}) for i, w in enumerate(EVIL)
    ]
    jobs.command(
        "d", "demo", "Demo\n# x", Outcome.FAILED, reason="checks",
        checks=said, metrics=metrics, degraded="|".join(EVIL[:9]),
    )  # fmt: skip
    device = A10G | {"name": "GPU | `x`\n```\n# <b>"}
    raw = probe(device)
    raw["packages"] = {"torch": "2|<i>"}
    cell = cell_of(
        Platform(id="rack-2", provider="static"),
        jobs,
        Outcome.FAILED,
        "tests",
        detail="|".join(EVIL[:8]),
        probed=raw,
        notices=tuple(Notice(i, 1.0, w, "info", w) for i, w in enumerate(EVIL)),
        decisions=tuple(decision(i, PlacementResult.REFUSED, w, w, w) for i, w in enumerate(EVIL)),
        attestation=Attestation(
            {"image_name": EVIL[0], "zone": EVIL[4]},
            tuple(Device(w, w, w, w, w) for w in EVIL),
            EVIL[6],
            simulated=True,
            mismatch="|".join(EVIL[:9]),
        ),
        leases=(replace(lease(), machine_id=EVIL[0], market=EVIL[4], priced=EVIL[5]),),
        artifacts=tuple(ArtifactRecord(w, 10, "ab" * 32) for w in EVIL if w.strip()),
    )
    return cell, jobs
