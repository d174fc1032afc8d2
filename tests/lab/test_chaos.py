"""The sample of `make chaos` at fixed seeds, and that its observer sees what it looks for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from orchestrator.domain.machine import LaunchRequest
from tests.chaos.boundaries import CLOUDS, Undisturbed, disturbed


@pytest.mark.parametrize("cloud", CLOUDS)
def test_blows_at_random_boundaries_change_nothing(cloud: str, tmp_path: Path) -> None:
    expected = Undisturbed.on(cloud, tmp_path / "undisturbed")
    fallen = 0
    for seed in range(2):
        folder = tmp_path / str(seed)
        fallen += disturbed(cloud, folder, expected, random.Random(seed)).total()
    assert fallen >= 2


def test_the_observer_sees_a_machine_that_is_left(tmp_path: Path) -> None:
    expected = Undisturbed.on("fake", tmp_path / "undisturbed")
    with CLOUDS["fake"](tmp_path / "one") as bench:
        bench.run()
        expected.check(bench)
        cloud = bench.here.cloud
        request: LaunchRequest = cloud.requests[0]
        cloud.launch(LaunchRequest("another", request.place, request.platform, {}))
        with pytest.raises(AssertionError, match="left: "):
            expected.check(bench)


def test_the_observer_sees_a_result_that_is_lost(tmp_path: Path) -> None:
    with CLOUDS["fake"](tmp_path / "one") as bench:
        bench.run()
        found = bench.results()
        more = Undisturbed(found + found, bench.report(), bench.made(), bench.steps(), 1)
        with pytest.raises(AssertionError, match="lost: "):
            more.check(bench)
        less = Undisturbed(type(found)(), bench.report(), bench.made(), bench.steps(), 1)
        with pytest.raises(AssertionError, match="doubled: "):
            less.check(bench)
        other = Undisturbed(found, "another report", bench.made(), bench.steps(), 1)
        with pytest.raises(AssertionError, match="another report"):
            other.check(bench)
