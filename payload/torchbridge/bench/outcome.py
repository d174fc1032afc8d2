"""The result of a benchmark: samples, ratio and interval, printed lines and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torchbridge import evidence
from torchbridge.bench.benchmark import Benchmark, Equality
from torchbridge.bench.peak import Peak
from torchbridge.bench.roofline import Roofline
from torchbridge.bench.sensors import summary
from torchbridge.timing import Ratio, Spread, quad_ratios

ARMS = ("subject", "baseline")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: seconds per call, start since the first sample, sensor readings."""

    arm: str  # "subject" or "baseline"
    seconds: float
    at_s: float
    readings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a benchmark; it has no samples if the arms' outputs differ (`equality`).

    `first_s` are the seconds of each arm's first call, including compilation; `peaks` its peak
    memory.
    """

    benchmark: Benchmark
    equality: Equality
    samples: tuple[Sample, ...] = ()
    calls: int = 1  # per sample
    clock: str = ""
    cache: str = "warm"
    first_s: Mapping[str, float] = field(default_factory=dict)
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    roofline: Roofline | None = None

    def seconds(self, arm: str) -> list[float]:
        """Return the samples of "subject" or "baseline" in chronological order."""
        return [sample.seconds for sample in self.samples if sample.arm == arm]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Baseline time over subject time of each quad; above 1 the subject is faster."""
        samples = self.samples
        return quad_ratios([s.arm for s in samples], [s.seconds for s in samples])

    def ratio(self, confidence: float = 0.95) -> Ratio:
        """Return the median of `ratios` with its confidence interval.

        Raises:
            ValueError: there are no samples.
        """
        return Ratio.from_quads(self.ratios, confidence)

    @property
    def ok(self) -> bool:
        """Whether the outputs agree and the interval is not wholly below the threshold."""
        if not self.equality.equal:
            return False
        return self.benchmark.threshold is None or self.ratio().high >= self.benchmark.threshold

    @property
    def goal_met(self) -> bool | None:
        """Whether the median ratio reaches the goal; None without a goal or samples."""
        if self.benchmark.goal is None or not self.samples:
            return None
        return self.ratio().median >= self.benchmark.goal

    @property
    def memory_ratio(self) -> float | None:
        """Peak memory of the subject over the baseline's; None if one is unknown or 0."""
        ours, theirs = (self.peaks[arm].bytes if arm in self.peaks else None for arm in ARMS)
        return ours / theirs if ours is not None and theirs else None

    @property
    def memory_goal_met(self) -> bool | None:
        """Whether `memory_ratio` is within the goal; None if unknown or without a goal."""
        if self.benchmark.memory_goal is None or self.memory_ratio is None:
            return None
        return self.memory_ratio <= self.benchmark.memory_goal

    def agrees(self, confidence: float = 0.99) -> bool:
        """Return whether the interval contains 1, as it must for two identical arms (A/A test)."""
        ratio = self.ratio(confidence)
        return ratio.low <= 1 <= ratio.high

    def emit(self) -> None:
        """Report metrics with all samples, and the checks, as evidence."""
        benchmark, equality = self.benchmark, self.equality
        evidence.check(
            f"{benchmark.name}/equal",
            equality.equal,
            value=_finite(equality.error),
            unit=equality.unit,
            tolerance=equality.tolerance,
        )
        if self.samples:
            self._emit_metrics()
        if self.samples and benchmark.threshold is not None:
            value = self.ratio().median
            evidence.check(
                f"{benchmark.name}/threshold",
                self.ok,
                value=value,
                unit="x",
                tolerance=benchmark.threshold,
            )

    def _emit_metrics(self) -> None:
        name = self.benchmark.name
        params = {"device": str(self.benchmark.device), "baseline": self.benchmark.baseline.name}
        params |= {**self.benchmark.params, "cache": self.cache.split(":")[0], "clock": self.clock}
        for arm, metric in zip(ARMS, ("latency", "baseline_latency"), strict=True):
            ms = [1e3 * s for s in self.seconds(arm)]
            evidence.metric(f"{name}/{metric}", ms, unit="ms", direction="lower", **params)
        evidence.metric(f"{name}/ratio", self.ratios, unit="x", direction="higher", **params)
        first = [self.first_s["subject"]]
        evidence.metric(f"{name}/first_call", first, unit="s", direction="lower", **params)
        peak = self.peaks["subject"].bytes
        if peak is not None:
            evidence.metric(
                f"{name}/peak_memory", [peak], unit="bytes", direction="lower", **params
            )

    def lines(self) -> list[str]:
        """Return the lines to print: the ratio, each arm, then roofline, sensors and goals."""
        benchmark = self.benchmark
        if not self.equality.equal:
            return [f"{benchmark.name}: {self._equality_text()}: the arms differ, nothing is timed"]
        ratio = self.ratio()
        table = [f"{benchmark.name}: {ratio} of {benchmark.baseline.name}, {self._how_sure(ratio)}"]
        table += [self._arm_line(arm, title) for arm, title in zip(ARMS, self._titles, strict=True)]
        table.append(f"  {self._equality_text()}; {self.clock}, cache {self.cache}")
        if self.roofline is not None and str(self.roofline):
            table.append(f"  {self.roofline}")
        readings = summary(sample.readings for sample in self.samples)
        if readings:
            table.append("  " + ", ".join(f"{name} {span}" for name, span in readings.items()))
        return table + self._marks(ratio)

    @property
    def _titles(self) -> tuple[str, str]:
        return self.benchmark.subject.name, self.benchmark.baseline.name

    def _how_sure(self, ratio: Ratio) -> str:
        each = f", {self.calls} calls a sample" if self.calls > 1 else ""
        return f"{ratio.confidence:.1%} interval of {ratio.quads} ABBA quads{each}"

    def _equality_text(self) -> str:
        equality = self.equality
        word = "equal" if equality.equal else "not equal"
        return f"{word}: {equality.error:.2g} {equality.unit}, {equality.tolerance:g} allowed"

    def _arm_line(self, arm: str, title: str) -> str:
        spread, peak = Spread.from_samples([1e3 * s for s in self.seconds(arm)]), self.peaks[arm]
        first = f"first call {self.first_s[arm]:.2f} s"
        memory = (
            "peak memory not known" if peak.bytes is None else f"peak {peak.bytes / 1e6:.1f} MB"
        )
        quartiles = f"({spread.low:.4g} to {spread.high:.4g})"
        return f"  {title:<28} {spread.median:>10.4g} ms {quartiles:<22} {first}, {memory}"

    def _marks(self, ratio: Ratio) -> list[str]:
        benchmark, marks = self.benchmark, []
        if benchmark.threshold is not None:
            marks.append(f"threshold {benchmark.threshold:g}x {'kept' if self.ok else 'MISSED'}")
        if benchmark.goal is not None:
            whole = ", the whole interval above" if ratio.low >= benchmark.goal else ""
            marks.append(
                f"goal {benchmark.goal:g}x {'met' + whole if self.goal_met else 'not met'}"
            )
        if benchmark.memory_goal is not None:
            share, met = self.memory_ratio, "met" if self.memory_goal_met else "not met"
            text = "not known" if share is None else f"{share:.3f}x of the baseline's, {met}"
            marks.append(f"memory goal {benchmark.memory_goal:g}x: {text}")
        return [f"  {'; '.join(marks)}"] if marks else []

    def to_dict(self) -> dict[str, Any]:
        """Return everything, including all samples, in JSON's types."""
        benchmark = self.benchmark
        values: dict[str, Any] = {
            "name": benchmark.name,
            "subject": benchmark.subject.name,
            "baseline": benchmark.baseline.name,
            "device": str(benchmark.device),
            "params": dict(benchmark.params),
            "equality": asdict(self.equality) | {"error": _finite(self.equality.error)},
            "ok": self.ok,
            "threshold": benchmark.threshold,
            "goal": benchmark.goal,
            "goal_met": self.goal_met,
            "memory_goal": benchmark.memory_goal,
            "memory_ratio": self.memory_ratio,
            "memory_goal_met": self.memory_goal_met,
            "clock": self.clock,
            "cache": self.cache,
            "calls_per_sample": self.calls,
            "first_call_s": dict(self.first_s),
            "peak_memory": {arm: asdict(peak) for arm, peak in self.peaks.items()},
            "roofline": asdict(self.roofline) if self.roofline else None,
            "samples": [asdict(sample) for sample in self.samples],
        }
        if self.samples:
            values["ratio"] = asdict(self.ratio())
            values["ratio_99"] = asdict(self.ratio(0.99))
        return values


def _finite(error: float) -> float | None:
    """Return the error, or None if it is infinite or NaN, which JSON does not have."""
    return error if math.isfinite(error) else None
