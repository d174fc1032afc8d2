"""The bench core measures what it says, and evidence arrives as written."""

from __future__ import annotations

import json
import statistics
import time

import pytest
import torch

from torchbridge import evidence
from torchbridge.timing import Comparison, Spread, compare, timed, warm_up

CPU = torch.device("cpu")


def test_timed():
    assert 0.02 <= timed(lambda: time.sleep(0.02), CPU) < 0.5


def test_warm_up_ends():
    calls = []
    assert 3 <= warm_up(lambda: calls.append(time.sleep(0.005)), CPU, budget_s=2.0) == len(calls)
    assert warm_up(lambda: time.sleep(0.05), CPU, budget_s=0.01) == 2  # twice, come what may


def test_arms_take_turns():
    order = []
    result = compare(lambda: order.append("A"), lambda: order.append("B"), device=CPU, pairs=4)
    assert "".join(order) == "ABBAABBA"
    assert len(result.subject_s) == len(result.baseline_s) == 4


def test_budget_ends_it_after_enough_pairs():
    arms = (lambda: time.sleep(0.01),) * 2
    assert len(compare(*arms, device=CPU, pairs=50, at_least=3, budget_s=0.0).ratios) == 3


def test_ratio_is_baseline_over_subject():
    result = Comparison((1.0, 2.0, 4.0), (2.0, 4.0, 8.0))
    assert result.ratios == (2.0, 2.0, 2.0)
    assert result.interval() == (2.0, 2.0)


def test_interval_holds_the_median():
    subject = tuple(1 + 0.01 * (i % 7) for i in range(21))
    result = Comparison(subject, (1.0,) * 21)
    low, high = result.interval()
    assert min(result.ratios) <= low <= statistics.median(result.ratios) <= high
    assert high - low < max(result.ratios) - min(result.ratios)
    assert result.interval() == (low, high)


def test_spread():
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_evidence_lines(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("SEATRIAL_EVENTS", str(path))
    assert evidence.check("exact", True, value=0.5, tolerance=1.0)
    assert not evidence.check("wrong", False)
    assert evidence.check("absent", "skipped", reason="needs CUDA")
    evidence.metric("moe/t", [1.0, 2.0], unit="ms", direction="lower", hidden=512)
    evidence.degraded("slow path")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"check": "exact", "outcome": "passed", "value": 0.5, "tolerance": 1.0},
        {"check": "wrong", "outcome": "failed"},
        {"check": "absent", "outcome": "skipped", "reason": "needs CUDA"},
        {
            "metric": "moe/t",
            "samples": [1.0, 2.0],
            "unit": "ms",
            "direction": "lower",
            "params": {"hidden": 512},
        },
        {"degraded": "slow path"},
    ]


@pytest.mark.parametrize("call", [lambda: evidence.check("x", True), lambda: evidence.degraded("")])
def test_evidence_is_optional(monkeypatch, call):
    monkeypatch.delenv("SEATRIAL_EVENTS", raising=False)
    call()
