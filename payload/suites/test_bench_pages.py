"""The benchmarks that stand on the core: their verdicts, their file and their page."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F

from benchmarks import floor_duels, floors, gpu, gpu_page, gpu_profile
from torchbridge.bench import Arm, Duel, Equality, Ratio, close_to

CPU = torch.device("cpu")
ROW = {"name": "r", "make": int, "floor": 1.1, "seconds": 0.1}


def ratio(median: float, low: float, high: float) -> Ratio:
    return Ratio(median, low, high, 0.96, 30)


def options(tmp_path, *words: str) -> list[str]:
    return ["--out", str(tmp_path / "out"), "--device", "cpu", "--small", *words]


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
    def test_what_a_floor_goes_by(self, capsys, found, bound, verdict, words):
        assert floors.judge_ratio(floors.Row(**ROW, bound=bound), found, "b") == verdict
        assert words in capsys.readouterr().out

    def test_what_is_not_here_is_a_skip_with_its_reason(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setenv("SEATRIAL_EVENTS", str(tmp_path / "events"))

        def make() -> Duel:
            raise floor_duels.NotHereError("transformers is not installed")

        assert floors.judge(floors.Row(**ROW | {"make": make})) == "skipped"
        assert "transformers is not installed" in capsys.readouterr().out
        assert json.loads((tmp_path / "events").read_text())["outcome"] == "skipped"

    def test_what_breaks_misses_its_floor_and_costs_no_other(self, capsys):
        row = floors.Row(**ROW | {"make": lambda: 1 / 0})
        assert floors.judge(row) == "missed"
        assert "ZeroDivisionError: division by zero" in capsys.readouterr().out

    def test_unequal_arms_miss_the_floor(self, capsys):
        arms = Arm("a", lambda: torch.ones(2)), Arm("b", lambda: torch.zeros(2))
        duel = Duel(name="d", subject=arms[0], baseline=arms[1], equal=close_to(0.1), device=CPU)
        assert floors.judge(floors.Row(**ROW | {"make": lambda: duel})) == "missed"
        assert "nothing is timed" in capsys.readouterr().out

    def test_the_same_operators_need_no_time(self, capsys):
        assert floors.judge(floors.Row(**ROW | {"make": lambda: 8})) == "kept"
        assert "runs the same 8 operators" in capsys.readouterr().out

    def test_an_assignment_left_out_is_not_equal(self, monkeypatch):
        monkeypatch.setattr(floor_duels, "TOKENS", {512: (1, 8)})
        duel = floor_duels.moe_duel(512, "mask_loop", CPU)
        with torch.no_grad():
            duel.inputs(0)
            outputs = duel.subject.work(), duel.baseline.work()
            assert duel.equal(*outputs).equal
            duel.subject.work.func.computed[0] -= 1
        assert duel.equal(*outputs) == Equality(False, 1, unit="assignments")

    def test_storage(self):
        half, scales = floor_duels.fp8_storage()
        assert half == 0.5
        assert 0 < scales < 0.01


class TestGpu:
    def test_without_the_device_it_says_so(self, tmp_path, capsys):
        if torch.cuda.is_available():
            pytest.skip("there is a CUDA device")
        assert gpu.main(["--out", str(tmp_path)]) == 2
        assert capsys.readouterr().out == "No CUDA device here: nothing was measured.\n"
        assert list(tmp_path.iterdir()) == []

    def test_the_cpu_is_only_tried(self, tmp_path, capsys):
        assert gpu.main(["--out", str(tmp_path), "--device", "cpu"]) == 2
        assert "--small is needed" in capsys.readouterr().out

    def test_a_file_and_a_page(self, tmp_path, capsys):
        only = ("kernels/rms_norm/copy", "attention/full/cudnn")
        assert gpu.main(options(tmp_path, "--only", *only)) == 0
        told = json.loads((tmp_path / "out" / "gpu.json").read_text())
        norm, refused = told["duels"]
        assert norm["equality"]["equal"] is True
        assert norm["baseline"] == "copy"
        assert len(norm["samples"]) == 4 * norm["ratio"]["quads"] >= 24
        assert norm["roofline"]["copy"] > 0
        assert "sdpa_cudnn" in refused["refused"]
        assert told["machine"]["copy_bytes_per_s"] > 0
        text = (tmp_path / "out" / "gpu.md").read_text()
        assert "| attention/full/cudnn |  |  |  | refused: " in text
        assert "| kernels/rms_norm/copy | auto | copy | " in text
        assert "No figure here means anything" in text
        assert "1 duels refused, 0 failed" in capsys.readouterr().out

    def test_one_that_hangs_costs_only_itself(self, tmp_path):
        asked = gpu.parse(options(tmp_path, "--limit", "0.01"))
        hung = gpu.in_a_process("attention/full/flash", asked)
        assert hung["error"] == "still running after 0.01 s"
        line, good = gpu.summarise([hung, {"target": "x", "refused": "needs sm_90"}])
        assert (line, good) == ("gpu: 0 of 0 goals met, 1 duels refused, 1 failed", False)

    def test_a_child_that_fails_is_told_of_with_its_words(self, tmp_path):
        asked = gpu.parse(options(tmp_path))
        broken = gpu.in_a_process("no such duel", asked)
        assert broken["exit"] == 1
        assert "KeyError: 'no such duel'" in broken["error"]

    def test_every_target_has_a_duel(self):
        names = set(gpu.makers())
        wanted = {"moe/512/grouped_mm", "moe/1024/eager", "moe/decode", "gpt2", "fp8/4096"}
        wanted |= {f"attention/{kind}/cudnn" for kind in ("full", "causal")}
        wanted |= {f"kernels/{name}/compile" for name in ("softmax", "linear_cross_entropy")}
        assert wanted | {"kernels/rms_norm/copy", "kernels/layer_norm/copy"} <= names


def a_row(**more) -> dict:
    """A duel of a kernel as gpu.json has it."""
    low, high = more.pop("interval", (1.1, 1.3))
    row = {
        "target": "kernels/x/compile",
        "subject": "triton",
        "baseline": "torch.compile",
        "ratio": {"median": 1.2, "low": low, "high": high},
        "goal": 1.0,
        "goal_met": True,
        "memory_goal": None,
        "memory_goal_met": None,
        "memory_ratio": None,
        "roofline": {"peak": 0.5, "compute": None, "memory": 0.5, "copy": 0.625},
        "peak_memory": {"subject": {"bytes": 3_000_000}, "baseline": {"bytes": None}},
    }
    return row | more


MACHINE = {
    **dict.fromkeys(("device", "torch", "cuda", "triton", "driver"), "x"),
    "copy_bytes_per_s": 2e12,
    "peak_flops": {"bf16": 989e12, "fp8": None},
}


class TestPage:
    @pytest.mark.parametrize(
        ("more", "verdict"),
        [
            ({}, "keep: faster than torch.compile"),
            ({"interval": (0.9, 1.2)}, "remove: no faster, no slower"),
            ({"interval": (0.8, 0.9)}, "remove: slower"),
            (
                {"interval": (0.8, 0.9), "memory_goal_met": True, "memory_ratio": 0.25},
                "keep: 0.25x the memory of torch.compile",
            ),
        ],
    )
    def test_keep_or_remove(self, more, verdict):
        assert gpu_page.verdict(a_row(**more)) == verdict

    def test_what_was_not_held_decides_nothing(self):
        assert gpu_page.verdict({"refused": "needs sm_89"}) == "not asked: needs sm_89"
        assert gpu_page.verdict({"error": "x"}) == "not known: the duel failed"

    def test_rows(self):
        met = a_row(memory_goal=0.3, memory_goal_met=False)
        unequal = {k: v for k, v in a_row(equality={"error": 0.5}).items() if k != "ratio"}
        duels = [met, unequal, {"target": "gpt2", "error": "Traceback\nKilled | now\n"}]
        text = gpu_page.page({"machine": MACHINE, "small": False, "duels": duels})
        expected = "1.200 [1.100, 1.300] | 1x met, memory 0.3x **missed** | "
        expected += "50% of peak bandwidth, 62% of a copy | 3 MB / not known |"
        assert expected in text
        assert "| **not equal**: 0.5 |" in text
        assert "| **failed**: Killed \\| now |" in text
        assert "TFLOP/s: bf16 989\n" in text
        assert "No figure here" not in text

    def test_what_falls_short_has_its_profile(self):
        kernels = [{"name": "void gemm<1|2>", "us": 12.34, "calls": 2.0}]
        row = a_row(profile={"subject": kernels, "baseline": []})
        text = gpu_page.page({"machine": MACHINE, "small": False, "duels": [row, a_row()]})
        assert "| kernels/x/compile | subject | 12.3 | 2 | `void gemm<1\\|2>` |" in text
        assert text.count("| subject |") == 1

    def test_profile_names_what_was_run(self):
        x = torch.randn(300, 300)
        rows = gpu_profile.profile_of(Arm("a", lambda: F.relu(x @ x)), CPU)
        assert {row["name"]: row["calls"] for row in rows}.items() >= {"aten::mm": 1}.items()
        assert [row["us"] for row in rows] == sorted((row["us"] for row in rows), reverse=True)

    def test_a_goal_met_by_the_median_only_says_so(self):
        row = a_row(interval=(0.9, 1.3))
        text = gpu_page.page({"machine": MACHINE, "small": False, "duels": [row]})
        assert "1x met by the median" in text
        assert math.isclose(row["ratio"]["median"], 1.2)
