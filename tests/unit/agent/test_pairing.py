"""Pairing on the machine: what turns come to, how certain they are, and what the gauges say."""

from __future__ import annotations

import json
import math
import os
import random
import threading
from pathlib import Path

import pytest

from orchestrator.adapters.statistics import PairedStatistics
from runners.agent import plan
from runners.agent.benchmark_arms import ArmReport
from runners.agent.event_lines import BadLineError, understand
from runners.agent.job_env import own_caches
from runners.agent.on_path import seatrial_events
from runners.agent.paired_benchmark import (
    BASELINE,
    SUBJECT,
    TurnCounter,
    half_width,
    known_to,
    plain,
)
from runners.agent.telemetry import Gauges, parse_nvidia

LATENCY = {"metric": "latency", "unit": "ms", "direction": "lower", "params": {}}


def said(*samples: float, **more: object) -> dict[str, object]:
    return {**LATENCY, "samples": list(samples), **more}


def test_turns_become_pairs() -> None:
    tally = TurnCounter()
    for arm, value in ((SUBJECT, 2.0), (BASELINE, 1.0), (BASELINE, 4.0), (SUBJECT, 2.0)):
        tally.add(arm, [said(value, value, 100.0)], {"load_1m": 0.5})
    assert tally.pairs == 2
    [ratios] = tally.log_ratios().values()
    assert ratios == pytest.approx([math.log(2), math.log(0.5)])
    assert [(event["arm"], event["turn"]) for event in tally.events()] == [
        (SUBJECT, 0), (BASELINE, 1), (BASELINE, 2), (SUBJECT, 3),
    ]  # fmt: skip
    assert next(tally.events())["readings"] == {"load_1m": 0.5}


def test_a_metric_is_known_by_its_parameters_too() -> None:
    tally = TurnCounter()
    tally.add(SUBJECT, [said(2.0, params={"n": 1}), said(3.0, params={"n": 2})], {})
    tally.add(BASELINE, [said(1.0, params={"n": 1}), said(1.0, params={"n": 3})], {})
    [ratios] = tally.log_ratios().values()
    assert ratios == pytest.approx([math.log(2)])


def test_what_has_no_ratio_is_in_no_pair() -> None:
    tally = TurnCounter()
    for arm, value in ((SUBJECT, 0.0), (BASELINE, 1.0), (BASELINE, 1.0), (SUBJECT, 3.0)):
        tally.add(arm, [said(value)], {})
    [ratios] = tally.log_ratios().values()
    assert ratios == pytest.approx([math.log(3)])


def test_the_plain_metric_has_every_sample() -> None:
    assert list(plain([said(1.0, 2.0), said(3.0)])) == [said(1.0, 2.0, 3.0)]


@pytest.mark.parametrize("pairs", [10, 20, 60])
def test_it_is_as_certain_as_the_gate_will_be(pairs: int) -> None:
    draw = random.Random(pairs)
    logs = [draw.gauss(0, 0.03) + (0.5 if draw.random() < 0.1 else 0) for _ in range(pairs)]
    there = PairedStatistics().compare(
        [math.exp(log) for log in logs], [1.0] * pairs, direction="lower", margin=0.0, alpha=0.025
    )
    wide = (math.log1p(there.high) - math.log1p(there.low)) / 2
    assert half_width(logs) == pytest.approx(wide, rel=0.1)


def test_certainty_looks_at_the_spread_alone() -> None:
    logs = [random.Random(7).gauss(0, 0.02) for _ in range(12)]
    assert half_width([log + 0.3 for log in logs]) == pytest.approx(half_width(logs))
    assert half_width([-log for log in logs]) == pytest.approx(half_width(logs))


def test_pairs_of_one_process_are_known_as_well_as_its_processes() -> None:
    draw = random.Random(3)
    levels = [draw.gauss(0, 0.02) for _ in range(6)]
    logs = [level + draw.gauss(0, 0.002) for level in levels for _ in range(4)]
    assert known_to(logs, 4) == pytest.approx(half_width(levels), rel=0.2)
    assert known_to(logs, 4) > 2 * half_width(logs)
    assert known_to(logs, 12) == known_to(logs, 24) == half_width(logs)


def test_certainty_of_few_and_of_equal_ratios() -> None:
    assert half_width([0.1, 0.1, 0.1]) == math.inf
    assert half_width([0.1] * 10) == 0.0
    assert half_width([0.0] * 8 + [0.4, 0.5]) > 0


def test_the_worst_of_a_check_over_all_turns_stands() -> None:
    arm_report = ArmReport()
    for outcome in ("passed", "failed", "skipped", "passed"):
        arm_report.hear("check", {"check": "close", "outcome": outcome})
    assert arm_report.checks["close"]["outcome"] == "failed"
    assert arm_report.failed == ["close"]


def test_what_was_heard_belongs_to_one_turn() -> None:
    arm_report = ArmReport()
    arm_report.hear("turn", {"turn": "ready"})
    arm_report.hear("metric", said(1.0))
    arm_report.hear("turn", {"turn": 3})
    assert (arm_report.ready, arm_report.over, arm_report.take(), arm_report.take()) == (
        True,
        3,
        [said(1.0)],
        [],
    )


@pytest.mark.parametrize("value", ["steady", True, 1.5, None])
def test_bad_turns(value: object) -> None:
    with pytest.raises(BadLineError, match="turn must be 'ready' or a whole number"):
        understand({"turn": value})


def test_nvidia() -> None:
    text = "1980, 345.12, 65, 0x0000000000000004\n1755, [N/A], 66, 0x0000000000000001\n"
    assert parse_nvidia(text) == {
        "sm_clock_mhz": 1755.0,
        "power_w": 345.12,
        "gpu_temperature_c": 66.0,
        "throttled": 1.0,
    }
    idle = "210, 20.0, 30, 0x0000000000000001"
    assert parse_nvidia(idle)["throttled"] == 0.0
    assert parse_nvidia("No devices were found") == {}
    assert parse_nvidia("[N/A], [N/A], [N/A], [N/A]") == {}


def test_gauges_are_numbers() -> None:
    found = Gauges().read()
    assert found["load_1m"] >= 0
    assert all(isinstance(value, float) and math.isfinite(value) for value in found.values())


def test_an_arm_compiles_for_itself_and_shares_its_models() -> None:
    caches = own_caches(Path("/arm"), {"HOME": "/home/x"})
    assert caches["TORCHINDUCTOR_CACHE_DIR"] == "/arm/inductor"
    assert caches["XDG_CACHE_HOME"] == "/arm"
    assert caches["HF_HOME"] == "/home/x/.cache/huggingface"
    assert own_caches(Path("/arm"), {"HOME": "/", "HF_HOME": "/models"})["HF_HOME"] == "/models"


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEATRIAL_EVENTS", str(tmp_path / "events"))
    return tmp_path / "events"


def test_alone_there_is_one_turn(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEATRIAL_TURNS", raising=False)
    assert list(seatrial_events.turns()) == [0]
    assert not events.exists()


def test_turns_are_taken_when_told(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "turns"
    os.mkfifo(pipe)
    monkeypatch.setenv("SEATRIAL_TURNS", str(pipe))
    speaker = threading.Thread(target=lambda: pipe.write_text("7\n9\nend\n11\n"))
    speaker.start()
    assert list(seatrial_events.turns()) == [0, 1]
    speaker.join()
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert lines == [{"turn": "ready"}, {"turn": 7}, {"turn": 9}]


def test_turns_end_with_the_agent(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "turns"
    os.mkfifo(pipe)
    monkeypatch.setenv("SEATRIAL_TURNS", str(pipe))
    speaker = threading.Thread(target=lambda: pipe.write_text("1\n"))
    speaker.start()
    assert list(seatrial_events.turns()) == [0]
    speaker.join()


JOB = {"id": "b", "kind": "benchmark", "command": ["x"], "timeout_s": 60}
PLAN = {
    "v": 1, "attempt": "a1", "payload": "p", "python": "/usr/bin/python3",
    "environment": {"name": "image"},
}  # fmt: skip


def load(tmp_path: Path, **more: object) -> plan.AgentPlan:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**PLAN, **more}))
    return plan.load(path)


def test_a_plan_with_a_baseline(tmp_path: Path) -> None:
    baseline = {
        "payload": "q", "wheels": "w", "environment": {"name": "image", "requirements": ["x"]},
        "subject": {"distribution": "d", "version": "1", "requirement": "d==1"},
    }  # fmt: skip
    paired = {"min_pairs": 10, "max_pairs": 60, "precision": 0.015}
    found = load(tmp_path, baseline=baseline, jobs=[{**JOB, "paired": paired, "turns": True}])
    assert found.baseline is not None
    assert (found.baseline.payload, found.baseline.wheels) == ("q", "w")
    assert found.baseline.subject == plan.PlanSubject("d", "1", "d==1")
    [job] = found.jobs
    assert (job.paired, job.turns) == (plan.Pairing(10, 60, 0.015), True)


def test_a_plan_whose_baseline_was_refused(tmp_path: Path) -> None:
    found = load(tmp_path, baseline={"refused": "no such package"}, jobs=[JOB])
    assert found.baseline is not None
    assert found.baseline.refused == "no such package"
    assert load(tmp_path, baseline=None, jobs=[JOB]).baseline is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"baseline": True}, "baseline must be an object"),
        ({"baseline": {"payload": "../x"}}, "baseline.payload must be a plain name"),
        ({"jobs": [{**JOB, "paired": 3}]}, r"jobs\[0\].paired must be an object"),
        ({"jobs": [{**JOB, "paired": {}}]}, r"paired.min_pairs must be a number"),
    ],
)
def test_bad_pairings(tmp_path: Path, change: dict[str, object], says: str) -> None:
    with pytest.raises(plan.PlanError, match=says):
        load(tmp_path, **{"jobs": [JOB], **change})
