"""Paired samples of a benchmark (turns of subject and baseline), and the spread of samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.domain.event_facts import BASELINE, SUBJECT, MetricFact
from orchestrator.domain.gate.performance import FEWEST_LAUNCHES
from orchestrator.domain.gate.snapshot import Pairs
from orchestrator.domain.grouping import grouped

LARGEST = 1e300
"""Upper limit of samples; larger values are no measurements, and their sums overflow."""

IQR_FROM = 5
"""Minimum number of samples for quartiles; with fewer samples, extremes are used."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of samples, in their unit."""

    median: float
    low: float
    high: float
    kind: str
    """Meaning of `low` and `high`: ``iqr`` (quartiles), ``range`` (extremes) or ``none``."""


def spread_of(samples: Sequence[float]) -> Spread | None:
    """Return the median of samples with their quartiles (inclusive method) or extremes.

    None if there is no sample, or if one is not finite.
    """
    if not samples or not all(abs(sample) < LARGEST for sample in samples):
        return None
    middle = statistics.median(samples)
    if len(samples) == 1:
        return Spread(middle, middle, middle, "none")
    if len(samples) < IQR_FROM:
        return Spread(middle, min(samples), max(samples), "range")
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(middle, low, high, "iqr")


THROTTLED = "throttled"
"""Name of a reading: 1 while a device throttles, otherwise 0."""
LAUNCH = "launch"
"""Name of a reading: the number of the resident arm's process."""

Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Identity of a metric: name, unit, direction and parameters."""
Both = tuple[MetricFact, MetricFact]
"""The subject's turn and the baseline's turn of a pair."""


def pairs_of(job: str, measured: Iterable[MetricFact]) -> tuple[Pairs, ...]:
    """Return the benchmarks of a job with their pairs, in the order of their first turns.

    The turns of both arms have common numbers. Their order is subject, baseline, baseline,
    subject, and so on, so that turns 2n and 2n + 1 are neighbours in time and form a pair. A
    pair counts if both of its turns have a value above 0, because a ratio needs such values.

    Args:
        job: The job's id.
        measured: The turns of the job, of both arms.
    """
    by_key = grouped((_key(fact), fact) for fact in measured)
    names = [key[0] for key in by_key]
    found = ((key, *_paired(facts)) for key, facts in by_key.items())
    return tuple(
        _pairs(job, key, both, dropped, alone=names.count(key[0]) == 1)
        for key, both, dropped in found
        if both
    )


def _key(fact: MetricFact) -> Key:
    params = sorted((str(name), str(value)) for name, value in fact.params.items())
    return fact.name, fact.unit, fact.direction, tuple(params)


def _paired(facts: Iterable[MetricFact]) -> tuple[list[Both], int]:
    """Return the usable pairs in their order, and the number of unusable ones."""
    turns: dict[int, dict[str, MetricFact]] = {}
    for fact in facts:
        if fact.turn is not None:
            turns.setdefault(fact.turn // 2, {})[fact.arm] = fact
    whole = [turns[n] for n in sorted(turns) if turns[n].keys() >= {SUBJECT, BASELINE}]
    both = [(arms[SUBJECT], arms[BASELINE]) for arms in whole]
    good = [pair for pair in both if all(value_of(fact) > 0 for fact in pair)]
    return good, len(turns) - len(good)


def value_of(fact: MetricFact) -> float:
    """Return the value of a turn: the median of its samples; 0 without samples."""
    return median(fact.samples) if fact.samples else 0.0


def _pairs(job: str, key: Key, both: Sequence[Both], dropped: int, *, alone: bool) -> Pairs:
    name, unit, direction, params = key
    said = "" if alone else ", ".join(f"{name}={value}" for name, value in params)
    readings = _readings([*(s for s, _ in both), *(b for _, b in both)])
    return Pairs(
        job=job,
        metric=f"{name} ({said})" if said else name,
        unit=unit,
        direction=direction,
        subject=tuple(value_of(subject) for subject, _ in both),
        baseline=tuple(value_of(baseline) for _, baseline in both),
        covariates=readings,
        remarks=tuple(_remarks(readings, 2 * len(both), dropped)),
    )


def _readings(turns: Sequence[MetricFact]) -> Mapping[str, tuple[float, ...]]:
    """Return the readings of every turn, by name, that all turns have."""
    names = dict.fromkeys(name for fact in turns for name in fact.readings)
    return {
        name: tuple(fact.readings[name] for fact in turns)
        for name in names
        if all(name in fact.readings for fact in turns)
    }


def _remarks(readings: Mapping[str, tuple[float, ...]], turns: int, dropped: int) -> Iterable[str]:
    throttled = sum(1 for value in readings.get(THROTTLED, ()) if value > 0)
    if throttled:
        yield f"throttled in {throttled} of {turns} turns"
    launches = len(set(readings.get(LAUNCH, ())))
    if 0 < launches < FEWEST_LAUNCHES:
        word = "process" if launches == 1 else "processes"
        yield f"each arm lived in {launches} {word}: where they lay in memory may show"
    if dropped:
        word = "pair is" if dropped == 1 else "pairs are"
        yield f"{dropped} {word} left out: a turn without a value above 0"


def launches_of(pairs: Pairs) -> tuple[float, ...]:
    """Return the number of each pair's process; empty if the processes were not resident."""
    return tuple(pairs.covariates.get(LAUNCH, ())[: len(pairs.subject)])
