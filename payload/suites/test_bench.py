"""The benchmark core: equality is checked first, arms alternate, and the results are described."""

from __future__ import annotations

import json
import math
import statistics
from types import SimpleNamespace

import pytest
import torch

from suites.numerics import Clock
from torchbridge.bench import Arm, Benchmark, Equality, Work, close_to, identical, run_benchmark
from torchbridge.bench.cold import TIMES, Flush
from torchbridge.bench.outcome import Outcome, Sample
from torchbridge.bench.peak import ALLOCATOR, RESIDENT, Peak, _by_allocator, _by_process, peak_of
from torchbridge.bench.roofline import Roofline, measured_bandwidth
from torchbridge.bench.run import Limits, Sampling, compare_outputs, repeats, warm_to_steady
from torchbridge.bench.stopwatch import Stopwatch
from torchbridge.hardware import Hardware

CPU = torch.device("cpu")
ONES = torch.ones(4)


class ArmedClock(Clock):
    """A clock that creates arms, whose calls advance it."""

    def arm(self, name: str, *seconds: float, log: list[str] | None = None) -> Arm:
        """Return an arm whose calls take the next of `seconds`; the last one repeats."""
        spend = self.work(*seconds)

        def work() -> torch.Tensor:
            spend()
            if log is not None:
                log.append(name)
            return ONES

        return Arm(name, work)


@pytest.fixture
def clock() -> ArmedClock:
    return ArmedClock()


def a_benchmark(subject: Arm, baseline: Arm, **more) -> Benchmark:
    settings = {"name": "d", "equal": identical, "device": CPU} | more
    return Benchmark(subject=subject, baseline=baseline, **settings)


def an_arm(name: str = "a", output: object = ONES, **more) -> Arm:
    return Arm(name, lambda: output, **more)


def an_outcome(ratios: list[float], **more) -> Outcome:
    """Return an outcome with these ratios of quads, and one second for each call of the subject."""
    samples = [
        Sample(arm, r if arm == "baseline" else 1.0, 0.0)
        for r in ratios
        for arm in ("subject", "baseline", "baseline", "subject")
    ]
    peaks = more.pop("peaks", {arm: Peak(None, "not asked") for arm in ("subject", "baseline")})
    benchmark = a_benchmark(an_arm("ours"), an_arm("theirs"), **more)
    first_s = {"subject": 2.0, "baseline": 1.0}
    return Outcome(
        benchmark, Equality(True), tuple(samples), first_s=first_s, peaks=peaks, clock="c"
    )


def numbers(*values: float) -> torch.Tensor:
    """Return a tensor of the values."""
    return torch.tensor(values)


class TestEquality:
    @pytest.mark.parametrize(
        ("equal", "ours", "theirs", "agree"),
        [
            (close_to(1e-3), numbers(0.0, 4.0036), numbers(0.0, 4.0), True),
            (close_to(1e-3), numbers(0.0, 4.008), numbers(0.0, 4.0), False),
            (close_to(1e3), numbers(1.0, math.nan), numbers(1.0, math.nan), False),
            (close_to(1e3), numbers(1.0, math.inf), numbers(1.0, 2.0), False),
            (close_to(1.0), torch.ones(2, 1), torch.ones(1, 2), False),
            (identical, torch.ones(2, 1), torch.ones(1, 2), False),
            (identical, [ONES], [ONES, ONES], False),
            (close_to(1.0), [], [], False),
            (close_to(1e-3), [ONES, ONES], [ONES, 2 * ONES], False),  # every tensor counts
            (close_to(1e-3), (ONES, [ONES]), [ONES, ONES], True),
            (identical, numbers(1, 2), numbers(1, 2), True),
        ],
    )
    def test_what_is_equal(self, equal, ours, theirs, agree):
        assert equal(ours, theirs).equal is agree

    def test_errors_are_measured(self):
        found = close_to(1e-3)(numbers(0.0, 4.0036), numbers(0.0, 4.0))
        assert found.error == pytest.approx(9e-4, abs=1e-6)  # relative to the largest number
        assert identical(numbers(1, 2, 3), numbers(1, 5, 4)).error == 2  # two elements differ
        with pytest.raises(TypeError, match="not str"):
            identical("a", "a")


class TestEqualFirst:
    def test_unequal_arms_are_never_timed(self, capsys):
        calls = []
        arms = [Arm(n, lambda n=n: calls.append(n) or torch.tensor([float(n)])) for n in "12"]
        outcome = run_benchmark(a_benchmark(*arms, equal=close_to(0.1)), budget_s=0.1)
        assert calls == ["1", "2"]
        assert (outcome.samples, outcome.ok) == ((), False)
        assert "the arms differ, nothing is timed" in capsys.readouterr().out

    def test_every_round_is_compared(self):
        held, seen = [0], []
        arms = (
            Arm("a", lambda: torch.tensor([float(held[0])])),
            Arm("b", lambda: torch.tensor([float(min(held[0], 1))])),  # equal for 0 and 1 only
        )

        def inputs(number: int) -> None:
            held[0] = number
            seen.append(number)

        _, equality = compare_outputs(a_benchmark(*arms, inputs=inputs, rounds=4))
        assert not equality.equal
        assert seen == [0, 1, 2, 0]  # the third is unequal; the first is what would be timed

    def test_set_up_comes_before_every_call(self):
        log = []
        arm = Arm("a", lambda: log.append("work") or ONES, setup=lambda: log.append("setup"))
        outcome = run_benchmark(
            a_benchmark(arm, an_arm()), pairs=4, at_least=4, budget_s=0.0, quiet=True
        )
        assert outcome.calls == 1
        assert log == ["setup", "work"] * (len(log) // 2)

    def test_params_that_mean_something_else_are_refused(self):
        with pytest.raises(ValueError, match="cannot be called samples"):
            a_benchmark(an_arm(), an_arm(), params={"samples": 3})
        with pytest.raises(ValueError, match="at least one round"):
            a_benchmark(an_arm(), an_arm(), rounds=0)


class TestSampling:
    def take(self, clock, subject, baseline, limits, **more):
        benchmark = a_benchmark(subject, baseline)
        return Sampling(benchmark, Stopwatch(CPU, clock=clock), read=dict, **more).take(limits)

    def test_quads_with_the_roles_swapped(self, clock):
        log = []
        arms = clock.arm("A", 1.0, log=log), clock.arm("B", 1.0, log=log)
        samples = self.take(clock, *arms, Limits(6, 6, 1e9, None, 0.95))
        assert "".join(log) == "ABBABAABABBA"
        assert [s.arm for s in samples[:5]] == [
            "subject", "baseline", "baseline", "subject", "baseline",
        ]  # fmt: skip

    def test_samples_belong_to_their_arms(self, clock):
        samples = self.take(
            clock, clock.arm("A", 1, 2, 3), clock.arm("B", 10, 20, 30), Limits(3, 3, 1e9, None, 0.9)
        )
        assert [s.seconds for s in samples] == [1, 10, 20, 2, 30, 3, 3, 30]
        assert [s.at_s for s in samples[:4]] == [0, 1, 11, 31]

    @pytest.mark.parametrize(("budget_s", "quads"), [(0.0, 3), (17.9, 3), (18.1, 4), (1e9, 5)])
    def test_until_the_budget_but_often_enough(self, clock, budget_s, quads):
        arms = clock.arm("A", 1.0), clock.arm("B", 2.0)  # six seconds a quad
        samples = self.take(clock, *arms, Limits(10, 6, budget_s, None, 0.95))
        assert len(samples) == 4 * quads

    def test_until_it_is_known_precisely_enough(self, clock):
        noisy = [1.0, 2.0, 1.5, 1.2] * 3 + [1.0] * 400
        arms = clock.arm("A", 1.0), clock.arm("B", *noisy)
        samples = self.take(clock, *arms, Limits(400, 12, 1e9, 0.01, 0.99))
        assert 8 < len(samples) // 4 < 60
        exact = self.take(
            clock, clock.arm("A", 1.0), clock.arm("B", 1.0), Limits(400, 2, 1e9, 0.01, 0.99)
        )
        assert 8 <= len(exact) // 4 <= 10  # 99 % confidence needs 8 quads

    def test_a_sample_is_the_median_of_short_times(self, clock):
        arm = clock.arm("A", 1.0, 1.0, 9.0, 9.0, 2.0, 2.0)  # the middle pair was interrupted
        assert Stopwatch(CPU, clock=clock).seconds(arm, calls=2, times=3) == 2.0

    def test_flush_is_not_timed(self, clock):
        def flush() -> None:
            clock.now += 100.0

        watch = Stopwatch(CPU, flush=flush, clock=clock)
        assert watch.seconds(clock.arm("A", 1.0)) == 1.0

    @pytest.mark.parametrize(
        ("steady_s", "expected"),
        [(1.0, (1, 1)), (2e-3, (1, 1)), (1e-3, (1, 2)), (5e-5, (1, 40)), (1.01e-6, (50, 40))],
    )
    def test_short_calls_are_repeated(self, steady_s, expected):
        assert repeats([an_arm()], CPU, steady_s) == expected

    def test_cold_or_set_up_calls_are_not(self):
        assert repeats([an_arm()], CPU, 1e-6, cold=True) == (1, 1)
        assert repeats([an_arm(), an_arm(setup=dict)], CPU, 1e-6) == (1, 1)
        calls, times = repeats([an_arm()], torch.device("cuda"), 1.01e-6)
        assert (calls, times) == (19802, 1)  # the device stays busy without synchronisation

    def test_warm_until_three_alike(self, clock):
        watch, log = Stopwatch(CPU, clock=clock), []
        arm = clock.arm("A", 9.0, 5.0, 1.0, 1.05, 1.0, log=log)
        assert warm_to_steady(watch, arm, budget_s=100.0) == 1.0
        assert len(log) == 5
        clock.now = 0.0
        assert warm_to_steady(watch, clock.arm("A", 8.0), budget_s=1.0) == 8.0
        assert clock.now == 8.0


class TestCold:
    @pytest.mark.parametrize("cache", [1 << 20, (1 << 20) + 3])
    def test_more_is_written_than_the_cache_holds(self, cache):
        flush = Flush(CPU, cache)
        assert flush.bytes >= TIMES * cache > cache
        for times in (1, 2):
            flush()
            assert bool((flush.buffer == times).all())  # each flush writes all bytes

    def test_an_accelerator_writes_while_launches_are_made(self):
        """The flush writes at least 2 GiB for any size of cache, to take longer than launches.

        The meta device allocates none of these bytes.
        """
        for cache in (50 * 2**20, None):
            assert Flush(torch.device("meta"), cache).bytes >= 2 * 2**30

    def test_a_cold_benchmark_says_so(self, capsys):
        outcome = run_benchmark(a_benchmark(an_arm(), an_arm(), cold=True), pairs=2, budget_s=0.0)
        assert outcome.cache.startswith("cold: ")
        assert "written before each sample" in capsys.readouterr().out


class TestPeak:
    def test_what_an_arm_allocates_is_seen(self):
        arms = [Arm("none", lambda: None), Arm("much", lambda: torch.ones(25_000_000).sum())]
        small, large = (peak_of(arm, CPU) for arm in arms)
        if large.bytes is None:
            pytest.skip(large.how)
        assert large.how == RESIDENT
        assert 95e6 <= large.bytes <= 130e6
        assert small.bytes <= 5e6

    def test_no_kernel_to_ask_is_no_guess(self, tmp_path):
        found = _by_process(an_arm(), tmp_path)
        assert found.bytes is None
        assert "does not tell" in found.how
        assert peak_of(an_arm(), torch.device("meta")).bytes is None

    def test_the_allocator_is_asked_for_what_came_on_top(self, monkeypatch):
        counts = SimpleNamespace(held=100, peak=100)
        fake = SimpleNamespace(
            reset_peak_memory_stats=lambda device: setattr(counts, "peak", counts.held),
            memory_allocated=lambda device: counts.held,
            max_memory_allocated=lambda device: counts.peak,
        )
        monkeypatch.setattr(torch, "meta", fake, raising=False)
        arm = Arm("a", lambda: setattr(counts, "peak", max(counts.peak, counts.held + 42)))
        counts.peak = 1000  # from an earlier arm
        assert _by_allocator(arm, torch.device("meta")) == Peak(42, ALLOCATOR)


class TestOutcome:
    @pytest.mark.parametrize(
        ("ratios", "threshold", "ok"),
        [
            ([0.8] * 12, 0.9, False),
            ([0.8] * 9 + [1.0] * 3, 0.9, True),  # the interval reaches 1
            ([0.8] * 11 + [1.0], 0.9, False),
            ([0.9] * 12, 0.9, True),
            ([0.1] * 12, None, True),
        ],
    )
    def test_a_threshold_is_missed_by_the_whole_interval(self, ratios, threshold, ok):
        assert an_outcome(ratios, threshold=threshold).ok is ok

    def test_a_goal_fails_nothing(self):
        outcome = an_outcome([0.5] * 12, goal=2.0)
        assert (outcome.ok, outcome.goal_met) == (True, False)
        assert an_outcome([2.0] * 12, goal=2.0).goal_met is True
        assert an_outcome([2.0] * 12).goal_met is None
        assert "goal 2x not met" in "\n".join(outcome.lines())

    def test_memory_against_its_goal(self):
        peaks = {"subject": Peak(30, "h"), "baseline": Peak(100, "h")}
        assert an_outcome([1.0] * 6, memory_goal=0.3, peaks=peaks).memory_goal_met is True
        assert an_outcome([1.0] * 6, memory_goal=0.2, peaks=peaks).memory_goal_met is False
        unknown = an_outcome([1.0] * 6, memory_goal=0.2)
        assert unknown.memory_goal_met is None
        assert "not known" in "\n".join(unknown.lines())

    def test_a_a(self):
        assert an_outcome([0.99, 1.01] * 10).agrees()
        assert not an_outcome([0.98, 0.99] * 10).agrees()

    def test_evidence(self, evidence):
        an_outcome([0.8] * 12, threshold=0.9, params={"dtype": "float32"}).emit()
        lines = evidence()
        checks = {one["check"]: one["outcome"] for one in lines if "check" in one}
        assert checks == {"d/equal": "passed", "d/threshold": "failed"}
        metrics = {one["metric"]: one for one in lines if "metric" in one}
        assert set(metrics) == {"d/latency", "d/baseline_latency", "d/ratio", "d/first_call"}
        assert metrics["d/latency"]["samples"] == [1e3] * 24
        assert metrics["d/baseline_latency"]["samples"] == [800.0] * 24
        assert metrics["d/ratio"]["samples"] == pytest.approx([0.8] * 12)
        expected = {"baseline": "theirs", "device": "cpu", "dtype": "float32"}
        assert metrics["d/ratio"]["params"] == expected | {"cache": "warm", "clock": "c"}

    @pytest.mark.parametrize("error", [math.inf, math.nan])
    def test_it_is_json_whatever_happened(self, evidence, error):
        outcome = Outcome(a_benchmark(an_arm(), an_arm()), Equality(False, error))
        outcome.emit()
        assert [one["outcome"] for one in evidence()] == ["failed"]
        assert json.loads(json.dumps(outcome.to_dict(), allow_nan=False))["ok"] is False

    def test_every_sample_is_kept_with_its_readings(self):
        outcome = run_benchmark(a_benchmark(an_arm(), an_arm()), pairs=8, budget_s=0.0, quiet=True)
        told = outcome.to_dict()
        assert len(told["samples"]) == 16
        assert told["ratio"]["quads"] == 4
        assert all(one["readings"]["load_1m"] >= 0 for one in told["samples"])
        assert set(told["first_call_s"]) == {"subject", "baseline"}


class TestRoofline:
    H100 = Hardware.nvidia((9, 0), units=132, clock_hz=1.98e9, memory_bytes_per_s=3.35e12)

    def test_fractions(self):
        found = Roofline.from_work(Work(1e12, 1e9, "bf16"), 2e-3, self.H100, 2.5e12)
        assert found.compute == pytest.approx(1e12 / 2e-3 / (4096 * 132 * 1.98e9))
        assert found.memory == pytest.approx(0.5e12 / 3.35e12)
        assert found.copy == pytest.approx(0.2)
        assert found.peak == max(found.compute, found.memory)

    def test_nothing_is_said_of_what_is_not_known(self):
        found = Roofline.from_work(Work(1e12, 1e9, "bf16"), 1e-3, Hardware.cpu(), None)
        assert (found.peak, found.compute, found.memory, found.copy) == (None,) * 4
        assert str(found) == ""
        assert Roofline.from_work(Work(bytes=1e9), 1e-3, self.H100, 1e12).compute is None

    def test_a_copy_is_measured_once(self):
        bandwidth = measured_bandwidth(CPU)
        assert 1e8 < bandwidth < 1e13
        assert measured_bandwidth(CPU) == bandwidth

    def test_a_benchmark_prints_what_it_knows(self, capsys):
        benchmark = a_benchmark(an_arm(), an_arm(), work=Work(bytes=1e6))
        outcome = run_benchmark(benchmark, pairs=2, budget_s=0.0)
        seconds = statistics.median(outcome.seconds("subject"))
        assert outcome.roofline.copy == pytest.approx(1e6 / seconds / measured_bandwidth(CPU))
        assert "of the copy bandwidth measured here" in capsys.readouterr().out
