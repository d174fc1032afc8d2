"""The benchmarks that use the core: their verdicts and their page."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from benchmarks import cpu_comparisons, gpu_page, gpu_profile
from benchmarks import cpu_speedup_thresholds as thresholds
from torchbridge.bench import Arm, Benchmark, Equality, Ratio, close_to

CPU = torch.device("cpu")
ROW = {"name": "r", "make": int, "threshold": 1.1, "seconds": 0.1}


def ratio(median: float, low: float, high: float) -> Ratio:
    return Ratio(median, low, high, 0.96, 30)


class TestFloors:
    @pytest.mark.parametrize(
        ("found", "bound", "verdict", "words"),
        [
            (ratio(1.2, 1.15, 1.3), False, "kept", "by the median, the whole interval too"),
            (ratio(1.1, 1.0, 1.3), False, "kept", "the whole interval is not above"),
            (ratio(1.09, 1.0, 1.3), False, "missed", "by the median"),
            (ratio(1.2, 1.1, 1.3), True, "kept", "by the lower end"),
            (ratio(1.2, 1.09, 1.3), True, "missed", "by the lower end"),
        ],
    )
    def test_what_a_threshold_goes_by(self, capsys, found, bound, verdict, words):
        assert thresholds.judge_ratio(thresholds.Row(**ROW, bound=bound), found, "b") == verdict
        assert words in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("found", "verdict"),
        [
            (ratio(1.2, 1.01, 1.3), "ahead"),
            (ratio(1.0, 0.99, 1.3), "even"),
            (ratio(0.8, 0.7, 0.99), "lost"),
        ],
    )
    def test_without_a_threshold_it_says_how_it_stands(self, capsys, found, verdict):
        assert (
            thresholds.judge_ratio(thresholds.Row(**ROW | {"threshold": None}), found, "b")
            == verdict
        )
        assert verdict in capsys.readouterr().out.lower()

    def test_what_is_not_here_is_a_skip_with_its_reason(self, capsys, evidence):
        def make() -> Benchmark:
            raise cpu_comparisons.NotHereError("transformers is not installed")

        assert thresholds.judge(thresholds.Row(**ROW | {"make": make})) == "skipped"
        assert "transformers is not installed" in capsys.readouterr().out
        assert [one["outcome"] for one in evidence()] == ["skipped"]

    def test_what_breaks_misses_its_floor_and_costs_no_other(self, capsys):
        row = thresholds.Row(**ROW | {"make": lambda: 1 / 0})
        assert thresholds.judge(row) == "missed"
        assert "ZeroDivisionError: division by zero" in capsys.readouterr().out

    def test_unequal_arms_miss_the_floor(self, capsys):
        arms = Arm("a", lambda: torch.ones(2)), Arm("b", lambda: torch.zeros(2))
        benchmark = Benchmark(
            name="d", subject=arms[0], baseline=arms[1], equal=close_to(0.1), device=CPU
        )
        assert thresholds.judge(thresholds.Row(**ROW | {"make": lambda: benchmark})) == "missed"
        assert "nothing is timed" in capsys.readouterr().out

    def test_the_same_operators_need_no_time(self, capsys):
        assert thresholds.judge(thresholds.Row(**ROW | {"make": lambda: 8})) == "kept"
        assert "runs the same 8 operators" in capsys.readouterr().out

    def test_an_assignment_left_out_is_not_equal(self, monkeypatch):
        monkeypatch.setattr(cpu_comparisons, "TOKENS", {512: (1, 8)})
        benchmark = cpu_comparisons.moe_benchmark(512, "mask_loop", CPU)
        with torch.no_grad():
            benchmark.inputs(0)
            outputs = benchmark.subject.work(), benchmark.baseline.work()
            assert benchmark.equal(*outputs).equal
            benchmark.subject.work.func.computed[0] -= 1
        assert benchmark.equal(*outputs) == Equality(False, 1, unit="assignments")

    def test_storage(self):
        half, scales = cpu_comparisons.fp8_storage()
        assert half == 0.5
        assert 0 < scales < 0.01


class TestPage:
    @pytest.mark.parametrize(
        ("low", "high", "memory", "verdict"),
        [
            (1.1, 1.3, None, "keep: faster than torch.compile"),
            (0.9, 1.2, None, "remove: no faster, no slower"),
            (0.8, 0.9, None, "remove: slower"),
            (0.8, 0.9, True, "keep: 0.25x the memory of torch.compile"),
        ],
    )
    def test_keep_or_remove(self, low, high, memory, verdict):
        row = {"ratio": {"low": low, "high": high}, "memory_goal_met": memory}
        assert gpu_page.verdict(row | {"memory_ratio": 0.25}) == verdict

    def test_what_was_not_held_decides_nothing(self):
        assert gpu_page.verdict({"refused": "needs sm_89"}) == "not asked: needs sm_89"
        assert gpu_page.verdict({"error": "x"}) == "not known: the benchmark failed"

    def test_profile_names_what_was_run(self):
        x = torch.randn(300, 300)

        @torch.profiler.record_function("an annotation")
        def work() -> torch.Tensor:
            return F.relu(x @ x)

        rows = gpu_profile.profile_of(Arm("a", work), CPU)
        assert "an annotation" not in [row["name"] for row in rows]
        assert {row["name"]: row["calls"] for row in rows}.items() >= {"aten::mm": 1}.items()
        assert [row["us"] for row in rows] == sorted((row["us"] for row in rows), reverse=True)
