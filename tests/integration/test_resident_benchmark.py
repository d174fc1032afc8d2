"""The payload's resident benchmark under the real agent: two versions of it, turn by turn."""

from __future__ import annotations

import shutil
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.agent_machine import REPOSITORY, Machine, command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="the payload's benchmarks need torch"),
]

ONCE, SLOW = "lambda: x @ x)", "lambda: (__import__('time').sleep(0.05), x @ x)[1])"
SLOW_MS = 50.0
PAIRS = {"min_pairs": 8, "max_pairs": 8, "precision": 0.001}
NAMES = ("resident/product", "resident/perceptron")


def library(folder: Path, *, product: str) -> Path:
    """The library and its resident benchmark, whose product is this one."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "payload" / "torchbridge", folder / "torchbridge", ignore=ignored)
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").touch()
    text = (REPOSITORY / "payload" / "benchmarks" / "resident.py").read_text()
    assert text.count(ONCE) == 1
    (folder / "benchmarks" / "resident.py").write_text(text.replace(ONCE, product))
    return folder


def test_a_slower_product_is_seen_in_pairs(machine: Machine, tmp_path: Path) -> None:
    new, old = (
        library(tmp_path / name, product=product)
        for name, product in (("new", SLOW), ("old", ONCE))
    )
    told = {"id": "resident", "kind": "benchmark", "turns": True, "paired": PAIRS, "timeout_s": 240}
    evidence = machine.run(
        new,
        python=sys.executable,
        jobs=[command("{python}", "-m", "benchmarks.resident", "--samples", "5", **told)],
        baseline={"payload": machine.unpack(old), "environment": {"name": "image"}},
        timeout_s=300,
    )
    assert not [text for text in evidence.messages("warning") if "Seatrial itself" not in text]
    finished = evidence.finished("resident")
    assert (finished["exit_code"], finished["cause"]) == (0, None)
    turns = [one for one in evidence.of("metric", "resident") if "arm" in one]
    assert {one["metric"] for one in turns} == {f"{name}/latency" for name in NAMES}
    assert all(len(one["samples"]) == 5 for one in turns)
    for name in NAMES:
        mine = [one for one in turns if one["metric"] == f"{name}/latency"]
        assert [one["arm"] for one in mine[:4]] == ["subject", "baseline", "baseline", "subject"]
        assert len(mine) == 16
    product = {
        arm: [
            value
            for one in turns
            if (one["metric"], one["arm"]) == (f"{NAMES[0]}/latency", arm)
            for value in one["samples"]
        ]
        for arm in ("subject", "baseline")
    }
    assert min(product["subject"]) >= SLOW_MS  # it sleeps that long, however busy the machine is
    assert statistics.median(product["baseline"]) < SLOW_MS
