"""A paired benchmark on one machine in the turns ABBA, until its precision or its time limit.

A drift (heat, clocks, other tenants) then affects both arms alike. Only one arm works at a time.
The memory layout of a process makes it some per cent faster or slower during its life: resident
arms are therefore restarted as often as the restarts are worth their time. A failure of the
baseline loses the pairs, but never the subject's result.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .benchmark_arms import Arm, ArmEnded
from .events import Data
from .evidence_text import JsonValue
from .plan import Pairing
from .suite import JobExit
from .supervise import Ended
from .telemetry import LAUNCH, Gauges, Readings

SUBJECT = "subject"
BASELINE = "baseline"
_SAMPLES = 100_000

Event = Dict[str, JsonValue]


@dataclass(frozen=True)
class TurnMetric:
    """One metric of one turn, merged from all its lines."""

    key: str
    data: Event
    samples: Tuple[float, ...]

    @property
    def value(self) -> float:
        """The median, on which one outlier has little effect."""
        return median(self.samples)


@dataclass(frozen=True)
class Turn:
    """Metrics of one turn of an arm, with the sensor readings at its end."""

    arm: str
    number: int
    readings: Mapping[str, float]
    measured: Tuple[TurnMetric, ...]

    def value(self, key: str) -> float:
        """Return the value of the turn's metric; 0 if the metric is missing."""
        return next((each.value for each in self.measured if each.key == key), 0.0)

    def events(self) -> Iterator[Event]:
        """Yield the turn's metrics, each with all samples."""
        for each in self.measured:
            yield {**each.data, "samples": list(each.samples)}


class TurnCounter:
    """Numbers the turns of both arms in order of time; turns 2n and 2n + 1 form a pair."""

    def __init__(self) -> None:
        self.turns: List[Turn] = []

    def add(self, arm: str, metrics: Sequence[Data], readings: Mapping[str, float]) -> None:
        """Add the next turn."""
        turn = Turn(arm, len(self.turns), dict(readings), tuple(_measured(metrics)))
        self.turns.append(turn)

    @property
    def pairs(self) -> int:
        """Number of turns that both arms have."""
        return len(self.turns) // 2

    def names(self, arm: str) -> Dict[str, str]:
        """Return the names of an arm's metrics, by key."""
        return {
            each.key: str(each.data["metric"])
            for turn in self.turns
            if turn.arm == arm
            for each in turn.measured
        }

    def log_ratios(self) -> Dict[str, List[float]]:
        """Return by key the logarithms of subject over baseline, for pairs with a ratio."""
        shared = self.names(SUBJECT).keys() & self.names(BASELINE).keys()
        return {key: list(self._of(key)) for key in sorted(shared)}

    def _of(self, key: str) -> Iterator[float]:
        for one, other in zip(self.turns[::2], self.turns[1::2]):
            value = {turn.arm: turn.value(key) for turn in (one, other)}
            subject, baseline = value.get(SUBJECT, 0.0), value.get(BASELINE, 0.0)
            if subject > 0 and baseline > 0:
                yield math.log(subject / baseline)

    def events(self) -> Iterator[Event]:
        """Yield the metric events of every turn of both arms."""
        for turn in self.turns:
            place: Event = {"arm": turn.arm, "turn": turn.number, "readings": dict(turn.readings)}
            for event in turn.events():
                yield {**event, **place}


def plain(metrics: Iterable[Data]) -> Iterator[Event]:
    """Yield metrics as an unpaired job reports them: each once, with all samples."""
    for each in _measured(metrics):
        yield {**each.data, "samples": list(each.samples[:_SAMPLES])}


def _measured(metrics: Iterable[Data]) -> Iterator[TurnMetric]:
    found: Dict[str, Tuple[Event, List[float]]] = {}
    for data in metrics:
        what = {name: value for name, value in data.items() if name != "samples"}
        samples = data["samples"]
        assert isinstance(samples, list)
        _, known = found.setdefault(json.dumps(what, sort_keys=True), (what, []))
        known += [float(sample) for sample in samples]
    for key, (what, known) in found.items():
        yield TurnMetric(key, what, tuple(known))


FEWEST = 4
_TWO_SIDED = NormalDist().inv_cdf(0.975)
_QUANTILE = 0.7
_NORMAL_SCALE = NormalDist().inv_cdf((1 + _QUANTILE) / 2)
_REACH = 6.0
"""Distance from the median, in scales, beyond which a ratio has no weight."""
_REACH_OF_FEW = 40.0


def half_width(log_ratios: Sequence[float]) -> float:
    """Return the half-width of the 95 % confidence interval of the mean log ratio.

    Infinite for fewer than four ratios: the removal of the linear drift needs two more.
    """
    if len(log_ratios) < FEWEST:
        return math.inf
    ratios = _without_drift(log_ratios)
    middle = median(ratios)
    reach = _reach(ratios, middle)
    if reach == 0:
        return 0.0
    near = [far for far in ((ratio - middle) / reach for ratio in ratios) if abs(far) < 1]
    pulls = sum((far * (1 - far**2) ** 2) ** 2 for far in near)
    slopes = sum((1 - far**2) * (1 - 5 * far**2) for far in near)
    if slopes <= 0:
        return math.inf
    count = len(ratios)
    error = reach * math.sqrt(pulls) / slopes * math.sqrt(count / (count - 2))
    return _student(max(1, len(near) - 2)) * error


def known_to(log_ratios: Sequence[float], launch: int) -> float:
    """Return the larger of two half-widths: from the ratios, or from the means of each start.

    Args:
        log_ratios: In the order in which they were taken.
        launch: Number of ratios that were taken in one start of both arms.
    """
    means = [fmean(log_ratios[at : at + launch]) for at in range(0, len(log_ratios), launch)]
    return max(half_width(log_ratios), half_width(means) if len(means) >= FEWEST else 0.0)


def _without_drift(ratios: Sequence[float]) -> List[float]:
    """Remove the linear drift, which has the opposite sign in every second pair."""
    drift = (median(ratios[::2]) - median(ratios[1::2])) / 2
    return [ratio - drift if n % 2 == 0 else ratio + drift for n, ratio in enumerate(ratios)]


def _reach(ratios: Sequence[float], middle: float) -> float:
    count = len(ratios)
    scale = _quantile(sorted(abs(ratio - middle) for ratio in ratios)) / _NORMAL_SCALE
    if scale == 0:  # most are the very same: a coarse clock
        scale = stdev(ratios)
    return (_REACH + _REACH_OF_FEW / count) * scale * count / (count - 1.5)


def _quantile(ordered: Sequence[float]) -> float:
    place = _QUANTILE * (len(ordered) - 1)
    low, part = int(place), place - int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - part) + ordered[high] * part


def _student(freedom: int) -> float:
    """Return Student's t at 97.5 % (Cornish-Fisher expansion, within 1 % from 3 degrees on)."""
    z, n = _TWO_SIDED, float(freedom)
    terms: Tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))


_WARM_UP = 0
_STARTING = 2
"""Maximum time for restarts of arms, as a multiple of the time of their turns."""
_BLOCK = 2
"""Pairs in subject, baseline, baseline, subject."""
_OUR_OWN = ("stopped", "disk_full")
"""Causes of a job's end for which neither arm is responsible."""
_LAST_WORDS_BYTES = 1_000
_NAMES = 5


class PairedRun:
    """Runs the turns of one job; emits the metrics of both arms."""

    def __init__(
        self, subject: Arm, baseline: Arm, pairing: Pairing, *, left_s: Callable[[], float]
    ) -> None:
        """Prepare.

        Args:
            subject: The arm whose end is the job's end.
            baseline: The other arm.
            pairing: The required number of pairs, or the required precision.
            left_s: Returns the seconds that are left for turns.
        """
        self._subject = subject
        self._baseline = baseline
        self._pairing = pairing
        self._left_s = left_s
        self._gauges = Gauges()
        self._tally = TurnCounter()
        self._warm: List[Data] = []
        self._trouble = ""
        self._start_s = 0.0
        self._launches = 1

    def run(self) -> JobExit:
        """Run the turns; the job ends like the subject's arm."""
        try:
            ended = self._measure()
        except ArmEnded as stopped:
            ended = stopped.ended
            self._note_early_end(ended)
        finally:
            self._baseline.close()
            self._subject.close()
        self._tell(ended)
        return JobExit(ended.exit_code, ended.signal, ended.cause, ended.detail, 0)

    def _measure(self) -> Ended:
        self._warm = self._begin(self._subject)
        try:
            self._begin(self._baseline)
            self._take_turns()
            ended = self._baseline.finish()
            if ended.exit_code != 0 or ended.cause is not None:
                raise ArmEnded(self._baseline, ended)
        except ArmEnded as stopped:
            if stopped.arm is self._subject or stopped.ended.cause in _OUR_OWN:
                raise
            self._trouble = self._last_words(stopped.ended)
            self._baseline.close()
        return self._subject.finish()

    def _take_turns(self) -> None:
        """Run blocks of turns until there are enough; log their number and the reason to stop."""
        longest_s = worked_s = 0.0
        while True:
            began = time.monotonic()
            for name, arm in self._order():
                said = arm.turn(len(self._tally.turns) + 1)
                self._tally.add(name, said, self._readings())
            took_s = time.monotonic() - began
            worked_s, longest_s = worked_s + took_s, max(longest_s, took_s)
            why = self._enough(longest_s + self._start_s)
            if why is not None:
                text = f"{self._tally.pairs} pairs of turns with the baseline: {why}"
                self._subject.job_context.output.banner(text)
                return
            if self._subject.lasts and worked_s * _STARTING >= self._start_s:
                self._start_anew()
                worked_s = 0.0

    def _readings(self) -> Readings:
        launch = {LAUNCH: float(self._launches)} if self._subject.lasts else {}
        return {**self._gauges.read(), **launch}

    def _start_anew(self) -> None:
        self._start_s, self._launches = 0.0, self._launches + 1
        for arm in (self._subject, self._baseline):
            self._begin(arm)

    def _begin(self, arm: Arm) -> List[Data]:
        """Start an arm and run a warm-up turn, whose metrics are dropped."""
        began = time.monotonic()
        arm.begin()
        said = arm.turn(_WARM_UP)
        self._start_s += time.monotonic() - began
        return said

    def _order(self) -> Tuple[Tuple[str, Arm], ...]:
        one, other = (SUBJECT, self._subject), (BASELINE, self._baseline)
        return one, other, other, one

    def _enough(self, longest_s: float) -> Optional[str]:
        ratios = self._tally.log_ratios()
        pairs, wanted = self._tally.pairs, self._pairing
        if not ratios:
            return "no metric that both arms say, so that nothing can be compared"
        widths = {key: self._width(values) for key, values in ratios.items()}
        widest = max(widths, key=lambda key: widths[key])
        known = f"{self._tally.names(SUBJECT)[widest]} is known to {_percent(widths[widest])}"
        if pairs >= wanted.min_pairs and widths[widest] <= wanted.precision:
            return f"the ratio of {known} or better, {_percent(wanted.precision)} was wanted"
        if pairs + _BLOCK > max(wanted.max_pairs, wanted.min_pairs):
            return f"no more are allowed; the ratio of {known}"
        if self._left_s() < 1.5 * longest_s:
            return f"the job's time is nearly up; the ratio of {known}"
        return None

    def _width(self, values: Sequence[float]) -> float:
        return known_to(values, max(1, round(self._tally.pairs / self._launches)))

    def _note_early_end(self, ended: Ended) -> None:
        """Log that the subject passed before its turns had ended, so that there are no pairs."""
        if ended.exit_code == 0 and ended.cause is None:
            taken = len(self._tally.turns)
            where = "without a turn" if not taken and not self._warm else _after(taken)
            self._trouble = (
                f"the subject's arm ended by itself {where}; a job with `turns = true` loops over "
                "seatrial_events.turns() until that ends"
            )

    def _last_words(self, ended: Ended) -> str:
        said = self._baseline.job_context.output.last(_LAST_WORDS_BYTES).strip()
        words = f"; it said last:\n{said}" if said else ""
        return f"its arm ended {_after(len(self._tally.turns))}: {ended.detail}{words}"

    def _tell(self, ended: Ended) -> None:
        """Report the subject's results as an unpaired job does, then the turns of both arms."""
        job_context, arm_report = self._subject.job_context, self._subject.arm_report
        _hear_out(self._subject)
        context, job = job_context.context, job_context.job.id
        for data in (
            *([arm_report.degraded] if arm_report.degraded else []),
            *arm_report.checks.values(),
        ):
            context.events.emit("check", job, data)
        turns = [turn for turn in self._tally.turns if turn.arm == SUBJECT]
        measured = [each for turn in turns for each in turn.events()]
        for event in plain([*(measured or self._warm), *arm_report.take()]):
            context.events.emit("metric", job, event)
        trouble = self._trouble or self._unfit()
        if trouble:
            context.events.log("warning", f"no pairs with the baseline: {trouble}", job)
        elif ended.exit_code == 0 and ended.cause is None:
            self._tell_turns()

    def _unfit(self) -> str:
        """Return why the baseline's results cannot be compared; empty if they can."""
        arm_report = self._baseline.arm_report
        if arm_report.degraded is not None:
            return f"its arm ran degraded: {arm_report.degraded['degraded']}"
        if arm_report.failed:
            return f"its arm failed its own checks: {', '.join(arm_report.failed[:_NAMES])}"
        if self._tally.turns and not self._tally.log_ratios():
            return f"no metric is said by both arms ({self._alone()})"
        return ""

    def _tell_turns(self) -> None:
        context, job = self._subject.job_context.context, self._subject.job_context.job.id
        alone = self._alone()
        if alone:
            text = f"metrics that only one arm says have no pairs ({alone})"
            context.events.log("warning", text, job)
        for event in self._tally.events():
            context.events.emit("metric", job, event)

    def _alone(self) -> str:
        names = {arm: self._tally.names(arm) for arm in (SUBJECT, BASELINE)}
        shared = names[SUBJECT].keys() & names[BASELINE].keys()
        told = []
        for arm, said in names.items():
            others = [name for key, name in said.items() if key not in shared]
            if others:
                told.append(f"{arm}: {', '.join(others[:_NAMES])}")
        return "; ".join(told)


def _hear_out(arm: Arm) -> None:
    while arm.job_context.checks.poll():
        continue


def _percent(width: float) -> str:
    return "nothing yet" if math.isinf(width) else f"±{100 * math.expm1(width):.2g} %"


def _after(turns: int) -> str:
    return f"after {turns} turn{'' if turns == 1 else 's'}"
