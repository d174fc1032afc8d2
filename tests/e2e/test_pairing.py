"""A small A/A: the real controller, agent and gate, a payload against itself and a slower one."""

from __future__ import annotations

import pytest

from tests.e2e.home import a_home
from tests.e2e.pairing import Speed


@pytest.fixture
def speed(tmp_path):
    with a_home(tmp_path / "home") as home:
        yield Speed(home, tmp_path, max_pairs=30)


def test_the_same_payload_never_fails_and_a_slower_one_does(speed):
    """One of each, the second four times as slow: no busy machine hides that.

    `python -m benchmarks.a_a` runs twenty of each, with small ones."""
    same = speed.judge(0.0)
    assert same.decision != "FAIL", same
    assert same.pairs >= 12
    slower = speed.judge(3.0)
    assert slower.decision == "FAIL", slower
    assert "loop/loop" in slower.benchmark
