"""kill -9 of the controller, again and again: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random
import time

from tests.e2e.home import a_home, eventually
from tests.e2e.payloads import Steps, matrix

TESTS = 30
STORED = (1, 12, 24)
"""Kills that are fired by stored state: so many tests."""
TIMED = 2
"""Kills after a random time."""


def test_kills_change_nothing(tmp_path):
    steps = Steps(tmp_path / "steps", tests=TESTS, seconds=0.25)
    with a_home(tmp_path / "home") as home:
        run = home.launch(matrix(tmp_path / "m.yaml", steps.folder))
        for moment in shuffled_moments():
            if isinstance(moment, float):
                time.sleep(moment)
            else:
                eventually(lambda m=moment: home.tests_stored(run) >= m)
            home.kill_controller()
            home.start_controller()
        home.seatrial("watch", run, status=1)
        steps.check(home.json("show", run))
        numbers = feed_numbers(home, run)
        assert numbers == list(range(1, len(numbers) + 1))


def shuffled_moments() -> list[int | float]:
    """The stored ones in their order, with the timed ones between them."""
    chance = random.Random(20261121)
    moments: list[int | float] = list(STORED)
    for _ in range(TIMED):
        moments.insert(chance.randrange(len(moments) + 1), chance.uniform(0.05, 1.2))
    return moments


def feed_numbers(home, run: str) -> list[int]:
    with home.client() as client, client.stream("GET", f"/runs/{run}/events") as answer:
        return [int(x[3:]) for x in answer.iter_lines() if x.startswith("id:") and x[3:].strip()]
