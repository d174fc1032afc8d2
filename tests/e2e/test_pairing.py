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
    """Two of each; `python -m benchmarks.a_a` runs twenty."""
    same = [speed.judge(0.0) for _ in range(2)]
    assert all(one.decision != "FAIL" for one in same), same
    assert all(one.pairs >= 12 for one in same)
    slower = [speed.judge(0.3) for _ in range(2)]
    assert [one.decision for one in slower] == ["FAIL", "FAIL"], slower
    assert all("loop/loop" in one.benchmark for one in slower)
