"""A benchmark in turns with its baseline, over arms that say what a test lets them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runners.agent.benchmark_arms import ArmEnded, ArmReport
from runners.agent.paired_benchmark import BASELINE, SUBJECT, PairedRun
from runners.agent.plan import Pairing
from runners.agent.suite import JobExit
from runners.agent.supervise import Ended

WELL = Ended(0, None, None, "exit code 0")
FEW = Pairing(4, 4, 0.001)
Work = Callable[["Arm"], None]


class Events:
    """What the run says of the job."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.warnings: list[str] = []
        self.banners: list[str] = []

    def emit(self, kind: str, job: str, data: Any) -> None:
        assert job == "bench"
        self.told.append((kind, data))

    def log(self, level: str, text: str, job: str) -> None:
        assert (level, job) == ("warning", "bench")
        self.warnings.append(text)

    def of(self, kind: str) -> list[Any]:
        return [data for each, data in self.told if each == kind]


class Arm:
    """Does its work at each turn, in as many processes as are begun."""

    lasts = True

    def __init__(self, events: Events, work: Work, end: Ended) -> None:
        self.arm_report = ArmReport()
        self.events, self.work, self.end = events, work, end
        self.begun = self.turns = 0
        self.closed = False
        self.job_context: Any = SimpleNamespace(
            context=SimpleNamespace(events=events),
            job=SimpleNamespace(id="bench"),
            output=SimpleNamespace(banner=events.banners.append, last=lambda most: "its words"),
            checks=SimpleNamespace(poll=lambda: False),
        )

    def begin(self) -> None:
        if self.begun and self.end != WELL:
            raise ArmEnded(self, self.end)
        self.begun += 1
        self.turns = 0

    def turn(self, number: int) -> list[Any]:
        self.work(self)
        self.turns += 1
        return self.arm_report.take()

    def finish(self) -> Ended:
        return self.end

    def close(self) -> None:
        self.closed = True

    def say(self, value: float, name: str = "m") -> None:
        metric = {"metric": name, "samples": [value], "unit": "ms", "direction": "lower"}
        self.arm_report.hear("metric", {**metric, "params": {}})


def steady(value: float) -> Work:
    return lambda arm: arm.say(value + arm.turns)


ONE, TWO = steady(1), steady(2)


def ends(after: int, ended: Ended, value: float = 1) -> Work:
    """Works well for so many turns of each process."""

    def work(arm: Arm) -> None:
        if arm.turns >= after:
            raise ArmEnded(arm, ended)
        arm.say(value)

    return work


def checks(name: str, outcomes: Iterator[str]) -> Work:
    def work(arm: Arm) -> None:
        arm.say(1)
        arm.arm_report.hear("check", {"check": name, "outcome": next(outcomes)})

    return work


def degraded(arm: Arm) -> None:
    arm.say(2)
    arm.arm_report.hear("check", {"degraded": "no kernel for it"})


def two_metrics(arm: Arm) -> None:
    arm.say(1)
    arm.say(1, "new")


def run(
    subject: Work = ONE, baseline: Work = TWO, *, pairing: Pairing = FEW,
    ends_as: Ended = WELL, baseline_ends_as: Ended = WELL, left_s: Callable[[], float] = lambda: 99,
) -> tuple[JobExit, Events]:  # fmt: skip
    events = Events()
    arms = Arm(events, subject, ends_as), Arm(events, baseline, baseline_ends_as)
    verdict = PairedRun(*arms, pairing, left_s=left_s).run()
    assert all(arm.closed for arm in arms)
    return verdict, events


def turns(events: Events) -> list[Any]:
    return [one for one in events.of("metric") if "arm" in one]


def plain(events: Events) -> list[Any]:
    return [one["samples"] for one in events.of("metric") if "arm" not in one]


def test_turns_in_the_order_that_cancels_drift() -> None:
    verdict, events = run(steady(100), steady(200))
    assert verdict == JobExit(0, None, None, "exit code 0", 0)
    taken = [(one["arm"], one["turn"]) for one in turns(events)]
    assert taken == [
        (SUBJECT, 0), (BASELINE, 1), (BASELINE, 2), (SUBJECT, 3),
        (SUBJECT, 4), (BASELINE, 5), (BASELINE, 6), (SUBJECT, 7),
    ]  # fmt: skip
    values = [one["samples"][0] for one in turns(events)]
    assert all(value % 100 for value in values), "the first turn of a process is for warming up"
    mine = [
        value for value, one in zip(values, turns(events), strict=True) if one["arm"] == SUBJECT
    ]
    assert plain(events) == [mine]
    assert events.warnings == []
    [banner] = events.banners
    assert banner.startswith("4 pairs of turns with the baseline: the ratio of m is known to ±0 %")


def noise(seed: int) -> Work:
    draw = random.Random(seed)
    return lambda arm: arm.say(100 * draw.gauss(1, 0.012))


def test_it_goes_on_until_the_ratio_is_known() -> None:
    _, events = run(noise(1), noise(2), pairing=Pairing(4, 400, 0.01))
    assert 8 < len(turns(events)) < 800
    assert "the ratio of m is known to" in events.banners[0]
    assert "was wanted" in events.banners[0]


def test_no_more_pairs_are_taken_than_are_allowed() -> None:
    _, events = run(noise(1), noise(2), pairing=Pairing(4, 10, 0.0001))
    assert events.banners[0].startswith("10 pairs of turns with the baseline: no more are allowed")
    assert len(turns(events)) == 20


def test_time_that_is_nearly_up_ends_the_turns() -> None:
    left = iter([99.0, 99.0, 0.0])
    _, events = run(noise(1), noise(2), pairing=Pairing(100, 200, 0.001), left_s=left.__next__)
    assert "the job's time is nearly up" in events.banners[0]
    assert len(turns(events)) == 12


@pytest.mark.parametrize(
    ("baseline", "ended", "says"),
    [
        (
            ends(1, Ended(1, None, None, "exit code 1")), WELL,
            "its arm ended after 1 turn: exit code 1; it said last:\nits words",
        ),
        (
            ends(1, Ended(None, 6, "hung", "nothing heard for 2 s")), WELL,
            "its arm ended after 1 turn: nothing heard for 2 s",
        ),
        (ends(0, WELL), WELL, "its arm ended after 0 turns: exit code 0"),
        (steady(2), Ended(7, None, None, "exit code 7"), "its arm ended after "),
        (
            lambda arm: arm.say(1, "old"), WELL,
            "no metric is said by both arms (subject: m; baseline: old)",
        ),
        (degraded, WELL, "its arm ran degraded: no kernel for it"),
        (checks("close", iter(["passed", "failed"] * 50)), WELL,
         "its arm failed its own checks: close"),
    ],
)  # fmt: skip
def test_trouble_with_the_baseline_costs_the_pairs_only(
    baseline: Work, ended: Ended, says: str
) -> None:
    verdict, events = run(baseline=baseline, baseline_ends_as=ended)
    assert (verdict.exit_code, verdict.cause) == (0, None)
    assert turns(events) == []
    [samples] = plain(events)
    assert samples, "of its warming up, where there is no other"
    [warning] = events.warnings
    assert warning.removeprefix("no pairs with the baseline: ").startswith(says)


@pytest.mark.parametrize(
    "ended",
    [
        Ended(1, None, None, "exit code 1"),
        Ended(None, 6, "hung", "silent"),
        Ended(None, 15, "stopped", "by a person"),
    ],
)
def test_trouble_with_the_subject_is_the_jobs(ended: Ended) -> None:
    for subject, end in ((ends(2, ended), WELL), (steady(1), ended)):
        verdict, events = run(subject, ends_as=end)
        assert (verdict.exit_code, verdict.signal, verdict.cause, verdict.detail) == (
            ended.exit_code, ended.signal, ended.cause, ended.detail,
        )  # fmt: skip
        assert turns(events) == []
        assert plain(events) != []


def test_a_stop_that_meets_the_baseline_first_is_the_jobs() -> None:
    stopped = Ended(None, 15, "stopped", "by a person")
    verdict, events = run(baseline=ends(2, stopped))
    assert (verdict.cause, events.warnings) == ("stopped", [])


def test_a_subject_that_takes_no_turn_is_no_failure() -> None:
    verdict, events = run(ends(0, WELL))
    assert (verdict.exit_code, verdict.cause) == (0, None)
    [warning] = events.warnings
    assert "ended by itself without a turn" in warning
    assert "seatrial_events.turns()" in warning


def test_a_subject_that_ends_between_its_turns_says_after_how_many() -> None:
    _, events = run(ends(2, WELL))
    [warning] = events.warnings
    assert "ended by itself after 3 turns" in warning


def test_metrics_that_one_arm_lacks_are_named() -> None:
    _, events = run(two_metrics, steady(1))
    assert events.warnings == ["metrics that only one arm says have no pairs (subject: new)"]
    assert len(turns(events)) == 12


def test_the_subjects_checks_are_told_once_and_at_their_worst() -> None:
    _, events = run(checks("close", iter(["passed", "failed", *["passed"] * 50])))
    assert events.of("check") == [{"check": "close", "outcome": "failed"}]
