"""A benchmark in turns with its baseline on one machine: subject, baseline, baseline, subject.

Whatever drifts (heat, clocks, a neighbour) then weighs on both arms alike. Only one arm works at a
time. Where a process's code and data lie in memory makes it some per cent faster or slower for as
long as it lives: so resident arms are started anew as often as that costs no more than it is worth.
What goes wrong with the baseline costs the pairs, and never the subject's own result.
"""

from __future__ import annotations

import math
import time
from typing import Callable, List, Optional, Sequence, Tuple

from .arms import Arm, ArmEnded
from .events import Data
from .paired_measurements import BASELINE, SUBJECT, Tally, plain
from .plan import Pairing
from .precision import known_to
from .suite import JobExit
from .supervise import Ended
from .telemetry import LAUNCH, Gauges, Readings

_WARM_UP = 0
_STARTING = 2
"""Times as long as their turns take, arms may take to start anew."""
_BLOCK = 2
"""Pairs in subject, baseline, baseline, subject."""
_OUR_OWN = ("stopped", "disk_full")
"""Causes that are no arm's."""
_LAST_WORDS_BYTES = 1_000
_NAMES = 5


class PairedRun:
    """Takes the turns of one job, and says what both arms have measured."""

    def __init__(
        self, subject: Arm, baseline: Arm, pairing: Pairing, *, left_s: Callable[[], float]
    ) -> None:
        """Prepare.

        Args:
            subject: Its end is the job's.
            baseline: The other arm.
            pairing: How many pairs are wanted.
            left_s: How much time is left for turns.
        """
        self._subject = subject
        self._baseline = baseline
        self._pairing = pairing
        self._left_s = left_s
        self._gauges = Gauges()
        self._tally = Tally()
        self._warm: List[Data] = []
        self._trouble = ""
        self._start_s = 0.0
        self._launches = 1

    def run(self) -> JobExit:
        """Take the turns; the job ends as the subject's arm does."""
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
        """Take blocks of turns until there are enough, and say how many there were, and why."""
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
        """Start an arm and let it have a turn that counts for nothing, until all is warm."""
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
        known = f"{self._name(widest)} is known to {_percent(widths[widest])}"
        if pairs >= wanted.min_pairs and widths[widest] <= wanted.precision:
            return f"the ratio of {known} or better, {_percent(wanted.precision)} was wanted"
        if pairs + _BLOCK > max(wanted.max_pairs, wanted.min_pairs):
            return f"no more are allowed; the ratio of {known}"
        if self._left_s() < 1.5 * longest_s:
            return f"the job's time is nearly up; the ratio of {known}"
        return None

    def _width(self, values: Sequence[float]) -> float:
        return known_to(values, max(1, round(self._tally.pairs / self._launches)))

    def _name(self, key: str) -> str:
        return self._tally.names(SUBJECT)[key]

    def _note_early_end(self, ended: Ended) -> None:
        """A subject that ends well before its turns has passed, and has no pairs."""
        if ended.exit_code == 0 and ended.cause is None:
            taken = len(self._tally.turns)
            where = "without a turn" if not taken and not self._warm else f"after {taken} turns"
            self._trouble = (
                f"the subject's arm ended by itself {where}; a job with `turns = true` loops over "
                "seatrial_events.turns() until that ends"
            )

    def _last_words(self, ended: Ended) -> str:
        said = self._baseline.job_context.output.last(_LAST_WORDS_BYTES).strip()
        words = f"; it said last:\n{said}" if said else ""
        return f"its arm ended after {len(self._tally.turns)} turns: {ended.detail}{words}"

    def _tell(self, ended: Ended) -> None:
        """Say what the subject has measured, as if it had run alone; then the turns of both."""
        job_context, arm_report = self._subject.job_context, self._subject.arm_report
        _hear_out(self._subject)
        context, job = job_context.context, job_context.job.id
        for data in (
            *([arm_report.degraded] if arm_report.degraded else []),
            *arm_report.checks.values(),
        ):
            context.events.emit("check", job, data)
        turns = [turn for turn in self._tally.turns if turn.arm == SUBJECT]
        measured = [each for turn in turns for each in turn.told()]
        for event in plain([*(measured or self._warm), *arm_report.take()]):
            context.events.emit("metric", job, event)
        trouble = self._trouble or self._unfit()
        if trouble:
            context.events.log("warning", f"no pairs with the baseline: {trouble}", job)
        elif ended.exit_code == 0 and ended.cause is None:
            self._tell_turns()

    def _unfit(self) -> str:
        """Say why what the baseline has measured is nothing to be compared with, if it is not."""
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
