"""From turns to pairs."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from orchestrator.domain.event_facts import MetricFact, fold
from orchestrator.domain.evidence import Event
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.paired_samples import launches_of
from orchestrator.domain.run_record import JobRecord

ORDER = ("subject", "baseline", "baseline", "subject")


def job(*turns: MetricFact) -> JobRecord:
    return JobRecord("loop", "benchmark", "Loop", Outcome.PASSED, turns=turns)


def turns(*values: float, name: str = "time", direction: str = "lower", **more) -> list[MetricFact]:
    """A turn for each value, in the order in which the agent takes them."""
    said = {"unit": "ms", "direction": direction, "arm": "", "turn": 0, **more}
    numbers = count(1)
    return [
        MetricFact(next(numbers), "loop", name, (value,), **{**said, "arm": arm, "turn": turn})
        for turn, (value, arm) in enumerate(zip(values, ORDER * len(values), strict=False))
    ]


def test_turns_beside_each_other_are_a_pair() -> None:
    [pairs] = job(*turns(11, 10, 20, 22)).pairs
    assert (pairs.job, pairs.metric, pairs.unit, pairs.direction) == ("loop", "time", "ms", "lower")
    assert (pairs.subject, pairs.baseline) == ((11, 22), (10, 20))
    assert pairs.slowdown == pytest.approx(0.1)


def test_slower_is_less_where_higher_is_better() -> None:
    [pairs] = job(*turns(80, 100, 100, 80, direction="higher")).pairs
    assert pairs.slowdown == pytest.approx(0.25)


def test_the_value_of_a_turn_is_the_median_of_its_samples() -> None:
    first, second = turns(1, 1)
    outlier = MetricFact(9, "loop", "time", (1, 2, 90), "ms", "lower", arm="subject", turn=0)
    [pairs] = job(outlier, second).pairs
    assert pairs.subject == (2,)
    assert first.arm == "subject"


def test_a_turn_that_stands_alone_is_in_no_pair() -> None:
    assert job(*turns(1)).pairs == ()
    [pairs] = job(*turns(1, 1, 1)).pairs
    assert len(pairs.subject) == 1
    assert pairs.remarks == ("1 pair is left out: a turn without a value above 0",)


def test_without_a_ratio_there_is_no_pair() -> None:
    [pairs] = job(*turns(0, 1, 1, 1)).pairs
    assert pairs.subject == (1,)
    assert job(*turns(0, 0)).pairs == ()


def test_parameters_tell_benchmarks_of_one_name_apart() -> None:
    both = [*turns(1, 1, params={"n": 8}), *turns(2, 2, params={"n": 16})]
    assert [pairs.metric for pairs in job(*both).pairs] == ["time (n=8)", "time (n=16)"]
    assert [pairs.metric for pairs in job(*both[:2]).pairs] == ["time"]


def test_what_the_gauges_said_stands_beside_the_figures() -> None:
    hot = {"throttled": 1.0, "sm_clock_mhz": 1200.0}
    [pairs] = job(*turns(1, 1, 1, 1, readings=hot)).pairs
    assert pairs.covariates == {"throttled": (1.0,) * 4, "sm_clock_mhz": (1200.0,) * 4}
    assert pairs.remarks == ("throttled in 4 of 4 turns",)


def test_a_gauge_that_came_and_went_is_left_out() -> None:
    first, second = turns(1, 1)
    measured = MetricFact(
        1, "loop", "time", (1,), "ms", "lower", arm="subject", turn=0, readings={"power_w": 3.0}
    )
    [pairs] = job(measured, second).pairs
    assert pairs.covariates == {}
    assert first.turn == 0


def resident(launches: int) -> JobRecord:
    """Each process of each arm takes one block of turns."""
    taken = turns(*[1.0] * 4 * launches)
    return job(
        *(replace(turn, readings={"launch": 1.0 + at // 4}) for at, turn in enumerate(taken))
    )


def test_few_processes_are_said() -> None:
    remark = "each arm lived in {}: where they lay in memory may show"
    told = {n: resident(n).pairs[0].remarks for n in (1, 3, 4)}
    assert told == {1: (remark.format("1 process"),), 3: (remark.format("3 processes"),), 4: ()}


def test_each_pair_knows_its_processes() -> None:
    [pairs] = resident(2).pairs
    assert launches_of(pairs) == (1.0, 1.0, 2.0, 2.0)
    [alone] = job(*turns(1, 1)).pairs
    assert launches_of(alone) == ()


def test_a_job_without_turns_has_no_pairs() -> None:
    assert job().pairs == ()


def said(**data: object) -> MetricFact:
    whole = {"metric": "m", "samples": [1], "unit": "ms", "direction": "lower", **data}
    [fact] = fold([Event(1, 0.0, "metric", "loop", whole)]).metrics
    return fact


def test_an_event_says_whose_turn_it_was() -> None:
    fact = said(arm="baseline", turn=3, readings={"load_1m": 1, "x": "hot", "y": float("inf")})
    assert (fact.arm, fact.turn, fact.readings) == ("baseline", 3, {"load_1m": 1.0})


@pytest.mark.parametrize(
    "nonsense",
    [
        {}, {"arm": "subject"}, {"arm": "third", "turn": 1}, {"arm": "subject", "turn": -1},
        {"arm": "subject", "turn": True}, {"arm": ["subject"], "turn": 1},
    ],
    ids=str,
)  # fmt: skip
def test_nonsense_is_a_plain_metric(nonsense: dict[str, object]) -> None:
    fact = said(**nonsense)
    assert (fact.arm, fact.turn, fact.readings) == ("", None, {})
