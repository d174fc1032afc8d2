"""Run a benchmark: compare outputs, warm up, then sample both arms alternately."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from torchbridge.bench.benchmark import Arm, Benchmark, Equality
from torchbridge.bench.outcome import ARMS, Outcome, Sample
from torchbridge.bench.peak import peak_of
from torchbridge.bench.roofline import Roofline, measured_bandwidth
from torchbridge.bench.sensors import Sensors
from torchbridge.bench.stopwatch import Stopwatch
from torchbridge.hardware import probe
from torchbridge.timing import Ratio, Spread, in_quads, quad_ratios, until_steady

SAMPLE_S = 2e-3  # minimum seconds of a sample with a warm cache
EVENTS_S = 2e-2  # the same by events, which include host work before the first launch
SHORT_S = 5e-5  # minimum seconds per clock reading, which takes about 1e-7
_PAIRS_OF_QUAD = 2
_LOOKS = 1.25  # times as many quads each time it is looked whether they are enough


def run_benchmark(
    benchmark: Benchmark,
    *,
    pairs: int = 60,
    at_least: int = 12,
    budget_s: float = 30.0,
    precision: float | None = None,
    confidence: float = 0.95,
    quiet: bool = False,
) -> Outcome:
    """Check that the arms agree, then time them; print the result and emit the evidence.

    At least `at_least` samples of each arm are taken and at most `pairs`. In between, sampling
    stops after `budget_s` seconds, or when the interval at `confidence` is no wider than
    `precision` times its median. Warm-up may take a quarter of the budget more. Arms that disagree
    are not timed.
    """
    outcome = _run(benchmark, Limits(pairs, at_least, budget_s, precision, confidence))
    outcome.emit()
    if not quiet:
        print(*outcome.lines(), sep="\n", flush=True)
    return outcome


def _run(benchmark: Benchmark, limits: Limits) -> Outcome:
    first_s, equality = compare_outputs(benchmark)
    if not equality.equal:
        return Outcome(benchmark, equality, first_s=first_s)
    watch, cache = Stopwatch(benchmark.device), "warm"
    if benchmark.cold:
        watch, flush = Stopwatch.cold(benchmark.device)
        cache = f"cold: {flush.describe()}"
    steady = [
        warm_to_steady(watch, arm, limits.budget_s / 8) for arm in arms_of(benchmark).values()
    ]
    peaks = {name: peak_of(arm, benchmark.device) for name, arm in arms_of(benchmark).items()}
    arms = arms_of(benchmark).values()
    calls, times = repeats(arms, benchmark.device, min(steady), cold=benchmark.cold)
    samples = Sampling(benchmark, watch, calls, times).take(limits)
    outcome = Outcome(
        benchmark, equality, samples, calls * times, watch.kind, cache, first_s, peaks
    )
    return _with_roofline(outcome)


def arms_of(benchmark: Benchmark) -> dict[str, Arm]:
    """Return the arms by the names "subject" and "baseline"."""
    return dict(zip(ARMS, (benchmark.subject, benchmark.baseline), strict=True))


def compare_outputs(benchmark: Benchmark) -> tuple[dict[str, float], Equality]:
    """Return seconds of the first calls by arm, and the worst agreement of all rounds.

    It stops at the first disagreement. Afterwards the first input is set again.
    """
    first_s: dict[str, float] = {}
    worst: Equality | None = None
    watch = Stopwatch(benchmark.device)
    for number in range(benchmark.rounds if benchmark.inputs else 1):
        if benchmark.inputs is not None:
            benchmark.inputs(number)
        outputs = []
        for name, arm in arms_of(benchmark).items():
            output, seconds = _first_call(arm, watch)
            first_s.setdefault(name, seconds)
            outputs.append(output)
        found = benchmark.equal(*outputs)
        worst = found if worst is None or not found.equal or found.error > worst.error else worst
        if not found.equal:
            break
    if benchmark.inputs is not None:
        benchmark.inputs(0)
    assert worst is not None
    return first_s, worst


def _first_call(arm: Arm, watch: Stopwatch) -> tuple[object, float]:
    outputs: list[object] = []
    kept = Arm(arm.name, lambda: outputs.append(arm.work()), setup=arm.setup)
    seconds = watch.seconds(kept)
    return outputs[0], seconds


def warm_to_steady(watch: Stopwatch, arm: Arm, budget_s: float) -> float:
    """Call until times are steady or the budget is spent; return the median of the last three."""
    samples = until_steady(lambda: watch.seconds(arm), budget_s=budget_s)
    return Spread.from_samples(samples[-3:]).median


def repeats(
    arms: Iterable[Arm], device: torch.device, steady_s: float, *, cold: bool = False
) -> tuple[int, int]:
    """Return (calls in a row, repetitions) of one sample, by the faster arm's seconds per call.

    Both are 1 if each call needs its own set-up or a cold cache. By the host's clock a sample is
    the median of many short times, which suppresses interruptions; by device events the calls are
    queued in a row, because synchronising in between would be measured.
    """
    if cold or any(arm.setup is not None for arm in arms):
        return 1, 1
    steady_s = max(steady_s, 1e-7)
    if device.type != "cpu":
        return max(1, math.ceil(EVENTS_S / steady_s)), 1
    calls = max(1, math.ceil(SHORT_S / steady_s))
    return calls, max(1, math.ceil(SAMPLE_S / (calls * steady_s)))


class Limits:
    """Decide when enough samples were taken."""

    def __init__(
        self,
        pairs: int,
        at_least: int,
        budget_s: float,
        precision: float | None,
        confidence: float,
    ) -> None:
        self.budget_s = budget_s
        self._most = max(1, math.ceil(pairs / _PAIRS_OF_QUAD))
        self._least = min(self._most, max(1, math.ceil(at_least / _PAIRS_OF_QUAD)))
        self._precision = precision
        self._confidence = confidence
        self._look_at = float(self._least)

    def enough(self, samples: list[Sample], spent_s: float) -> bool:
        """Return whether to stop, after a complete quad."""
        quads = len(samples) // 4
        if quads < self._least:
            return False
        return quads >= self._most or spent_s >= self.budget_s or self._known(samples, quads)

    def _known(self, samples: list[Sample], quads: int) -> bool:
        """Return whether the interval is precise; looks ever more rarely, to avoid chance hits."""
        if self._precision is None or quads < self._look_at:
            return False
        self._look_at = quads * _LOOKS
        ratios = quad_ratios([s.arm for s in samples], [s.seconds for s in samples])
        ratio = Ratio.from_quads(ratios, self._confidence)
        return ratio.confidence >= self._confidence and ratio.width <= self._precision


class Sampling:
    """Take the samples of a benchmark in quads, with sensor readings."""

    def __init__(
        self,
        benchmark: Benchmark,
        watch: Stopwatch,
        calls: int = 1,
        times: int = 1,
        *,
        read: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        self._arms = arms_of(benchmark)
        self._watch = watch
        self._repeats = calls, times
        self._read = read or Sensors(benchmark.device).read_sensors

    def take(self, limits: Limits) -> tuple[Sample, ...]:
        """Take complete quads until the limits are reached."""
        clock, start = self._watch.clock, self._watch.clock()

        def sample(name: str) -> Sample:
            at_s = clock() - start
            seconds = self._watch.seconds(self._arms[name], *self._repeats)
            return Sample(name, seconds, at_s, self._read())

        return tuple(in_quads(sample, lambda taken: limits.enough(taken, clock() - start)))


def _copied(device: torch.device) -> float | None:
    try:
        return measured_bandwidth(device)
    except torch.OutOfMemoryError:
        return None  # earlier measurements matter more than this error


def _with_roofline(outcome: Outcome) -> Outcome:
    work, device = outcome.benchmark.work, outcome.benchmark.device
    if work is None:
        return outcome
    copied = _copied(device) if work.bytes and device.type in ("cpu", "cuda") else None
    seconds = Spread.from_samples(outcome.seconds("subject")).median
    roofline = Roofline.from_work(work, seconds, probe(device), copied)
    return replace(outcome, roofline=roofline)
