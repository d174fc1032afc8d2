"""`make bench-gpu` on the CPU: what it keeps when it, a benchmark or the profiler is cut off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from tests.payload.collected import PAYLOAD

pytestmark = pytest.mark.filterwarnings("ignore")  # of what torch imports
TRIED, REFUSED = "moe/decode/torch_grouped_mm/graph", "attention/full/cudnn"
AT = {"commit": "c"}
HELD = {"goal": None, "memory_goal": None, "ratio": {"median": 2.0}}


@pytest.fixture(scope="module", autouse=True)
def payload():
    """The payload's package `benchmarks`; the repository has one of its own."""

    def forget() -> dict:
        names = [name for name in sys.modules if name.split(".")[0] == "benchmarks"]
        return {name: sys.modules.pop(name) for name in names}

    before = forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PAYLOAD))
        patch.chdir(PAYLOAD)
        yield
    forget()
    sys.modules.update(before)


@pytest.fixture(scope="module")
def torch():
    """Imported late: all workers of a run collect this file, and one of them runs it."""
    return import_module("torch")


@pytest.fixture(scope="module")
def gpu(payload):
    return import_module("benchmarks.gpu")


def words(out: Path, *more: str) -> list[str]:
    return ["--out", str(out), "--device", "cpu", "--small", *more]


def told_in(out: Path) -> dict:
    return json.loads((out / "gpu.json").read_text())


class TestRun:
    def test_without_the_device_it_says_so(self, gpu, torch, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(gpu, "driver", lambda: None)
        assert gpu.main(["--out", str(tmp_path)]) == 2
        assert capsys.readouterr().out == "No CUDA device here: nothing was measured.\n"
        assert list(tmp_path.iterdir()) == []

    def test_a_driver_too_old_for_torch_is_named_with_the_way_out(
        self, gpu, torch, capsys, monkeypatch
    ):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(gpu, "driver", lambda: "550.54")
        assert gpu.main(["--out", "x"]) == 2
        said = capsys.readouterr().out
        assert "driver 550.54" in said
        assert "its CUDA: 13.0" in said
        assert "TORCH='torch==2.8.0'" in said
        assert "No CUDA device" not in said

    def test_the_cpu_is_only_tried(self, gpu, tmp_path, capsys):
        assert gpu.main(["--out", str(tmp_path), "--device", "cpu"]) == 2
        assert "--small is needed" in capsys.readouterr().out

    def test_a_file_and_a_page(self, gpu, tmp_path, capsys):
        out = tmp_path / "out"
        assert gpu.main(words(out, "--only", TRIED, REFUSED)) == 0
        tried, refused = told_in(out)["benchmarks"]
        assert tried["equality"]["equal"] is True
        assert tried["baseline"] == "torch_grouped_mm, graph"
        assert len(tried["samples"]) == 4 * tried["ratio"]["quads"] >= 24
        assert tried["roofline"]["copy"] > 0
        assert "sdpa_cudnn" in refused["refused"]
        assert told_in(out)["machine"]["copy_bytes_per_s"] > 0
        text = (out / "gpu.md").read_text()
        assert f"| {REFUSED} |  |  |  | refused: " in text
        assert f"| {TRIED} | layer | torch_grouped_mm, graph | " in text
        assert "No figure here means anything" in text
        said = capsys.readouterr().out
        assert f"\nrefused: {REFUSED}\n" in said
        assert "1 benchmarks held, 1 refused, 0 failed" in said

    def test_every_target_has_a_benchmark(self, gpu):
        names = set(gpu.makers())
        wanted = {"moe/512/grouped_mm", "moe/1024/eager", "moe/decode", "gpt2", "fp8/4096"}
        wanted |= {f"attention/{kind}/cudnn" for kind in ("full", "causal")}
        wanted |= {f"kernels/{name}/compile" for name in ("moe_experts", "linear_cross_entropy")}
        assert wanted <= names

    def test_the_memory_of_the_copies_is_given_back(self, gpu, torch, monkeypatch):
        log = []
        monkeypatch.setattr(gpu, "measured_bandwidth", lambda device: log.append("copied") or 1.0)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append("CPU has none"))
        monkeypatch.setattr(gpu.memory, "empty_cache", lambda device: log.append(device))
        gpu.machine(torch.device("cpu"))
        assert log == ["copied", torch.device("cpu")]


@pytest.fixture
def said(gpu, monkeypatch):
    """What each benchmark's process would answer, by target; makers know no others."""
    answers = {"a": {"target": "a"} | HELD, "b": {"target": "b"} | HELD}
    monkeypatch.setattr(gpu, "makers", lambda: dict.fromkeys(answers))
    monkeypatch.setattr(gpu.gpu_suites, "names", list)
    monkeypatch.setattr(gpu, "machine", lambda device: {"device": "d", "torch": "t"} | AT)
    monkeypatch.setattr(gpu, "page", lambda told: f"{len(told['benchmarks'])} rows")
    monkeypatch.setattr(gpu, "in_a_process", lambda name, *_: dict(answers[name]))
    return answers


class TestKept:
    def test_what_is_done_is_written_at_once(self, gpu, said, tmp_path, monkeypatch):
        def cut_off(name, *_):
            if name == "b":
                raise KeyboardInterrupt
            return said[name]

        monkeypatch.setattr(gpu, "in_a_process", cut_off)
        with pytest.raises(KeyboardInterrupt):
            gpu.main(words(tmp_path))
        assert [one["target"] for one in told_in(tmp_path)["benchmarks"]] == ["a"]
        assert (tmp_path / "gpu.md").read_text() == "1 rows"
        assert {path.name for path in tmp_path.iterdir()} == {"gpu.json", "gpu.md"}

    def test_groups_run_one_after_the_other_into_one_file(self, gpu, said, tmp_path):
        said["b"]["run"] = 1
        assert gpu.main(words(tmp_path, "--only", "b")) == 0
        assert gpu.main(words(tmp_path, "--only", "a")) == 0
        assert [one["target"] for one in told_in(tmp_path)["benchmarks"]] == ["a", "b"]
        said["b"]["run"] = 2
        assert gpu.main(words(tmp_path, "--only", "b")) == 0
        assert told_in(tmp_path)["benchmarks"] == [said[name] | AT for name in "ab"]

    @pytest.mark.parametrize("changed", ["device", "torch"])
    def test_nothing_of_another_machine_is_kept(self, gpu, said, tmp_path, monkeypatch, changed):
        gpu.main(words(tmp_path, "--only", "b"))
        now = {"device": "d", "torch": "t", changed: "other"} | AT
        monkeypatch.setattr(gpu, "machine", lambda device: now)
        gpu.main(words(tmp_path, "--only", "a"))
        assert [one["target"] for one in told_in(tmp_path)["benchmarks"]] == ["a"]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_run_that_is_ended_ends_its_benchmark(self, tmp_path, number):
        with started(ASLEEP, *words(tmp_path, "--only", TRIED)) as run:
            lines = iter(run.stdout.readline, b"")
            child = next(int(line.split()[1]) for line in lines if line.startswith(b"waiting"))
            run.send_signal(number)
            assert run.wait(60) != 0
        is_left = Path(f"/proc/{child}").exists()
        if is_left:
            os.kill(child, signal.SIGKILL)
        assert not is_left

    def test_a_run_that_is_killed_ends_its_benchmark(self, tmp_path):
        """What only the kernel can tell: the other end of its input is closed."""
        with started(AT_WORK, *words(tmp_path, "--one", TRIED)) as benchmark:
            assert benchmark.stdout.readline() == b"at work\n"
            benchmark.stdin.close()
            try:
                assert benchmark.wait(60) == -signal.SIGKILL
            finally:
                benchmark.kill()


ASLEEP = """
import runpy, signal, subprocess, benchmarks.gpu
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where a shell's job tests
class Process(subprocess.Popen):
    def __init__(self, words, **more):
        self.is_benchmark = "--one" in words
        super().__init__(["sleep", "600"] if self.is_benchmark else words, **more)
    def wait(self, *limit, **more):
        print(f"waiting {self.pid}" if self.is_benchmark else "", flush=True)
        return super().wait(*limit, **more)
subprocess.Popen = Process
runpy.run_module("benchmarks.gpu", run_name="__main__", alter_sys=True)
"""
AT_WORK = """
import sys, time, benchmarks.gpu
benchmarks.gpu.run_child = lambda *_: print("at work", flush=True) or time.sleep(600)
benchmarks.gpu.main(sys.argv[1:])
"""


def started(code: str, *more: str) -> subprocess.Popen:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", code, *more]
    return subprocess.Popen(command, cwd=PAYLOAD, start_new_session=True, **streams)


class TestMinutes:
    """A device that is at hand for minutes: what is missing, in order, until time is over."""

    @pytest.fixture
    def ran(self, gpu, said, monkeypatch):
        """Which targets ran, in order; the clock goes on by 30 seconds with each."""
        names, now = [], [0.0]

        def one(name, options, most):
            names.append(name)
            now[0] += 30.0
            return dict(said[name])

        monkeypatch.setattr(gpu, "in_a_process", one)
        monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
        return names

    def test_it_goes_on_where_it_stopped(self, gpu, said, ran, tmp_path, capsys):
        said |= {name: {"target": name} | HELD for name in ("gpt2", "moe/decode")}
        assert gpu.main(words(tmp_path, "--budget", "70")) == 0
        assert ran == ["gpt2", "moe/decode"]
        assert "The budget is over, 2 are left" in capsys.readouterr().out
        assert gpu.main(words(tmp_path, "--budget", "70")) == 0
        assert ran[2:] == ["a", "b"]
        assert [one["target"] for one in told_in(tmp_path)["benchmarks"]] == ran
        gpu.main(words(tmp_path))
        assert ran[4:] == []

    def test_what_failed_is_tried_again_last(self, gpu, said, ran, tmp_path):
        said["a"] = {"target": "a", "error": "still running after 5 s"}
        assert gpu.main(words(tmp_path, "--budget", "40")) == 1
        said["a"] = {"target": "a"} | HELD
        assert gpu.main(words(tmp_path)) == 0
        assert ran == ["a", "b", "a"]

    @pytest.mark.parametrize("more", [["--anew"], ["--only", "a", "b"]])
    def test_anew(self, gpu, ran, tmp_path, more):
        gpu.main(words(tmp_path))
        gpu.main(words(tmp_path, *more))
        assert ran == ["a", "b"] * 2

    def test_another_commit_is_measured_anew(self, gpu, ran, tmp_path, monkeypatch):
        gpu.main(words(tmp_path))
        now = {"device": "d", "torch": "t", "commit": "d"}
        monkeypatch.setattr(gpu, "machine", lambda device: now)
        gpu.main(words(tmp_path))
        assert ran == ["a", "b"] * 2

    def test_a_target_has_what_is_left_of_the_budget(self, gpu, tmp_path, monkeypatch):
        seen = []
        monkeypatch.setattr(gpu, "child", lambda words, log, s: seen.append(s) or log.touch())
        gpu.in_a_process("gpt2", gpu.parse(words(tmp_path)), 33.0)
        gpu.in_a_process("correctness/moe", gpu.parse(words(tmp_path)), 44.0)
        assert seen == [33.0, 44.0]

    @pytest.mark.parametrize(("throttled", "kept"), [(1, True), (2, False)])
    def test_a_row_taken_while_throttled_is_none(self, gpu, throttled, kept):
        marks = [1.0] * throttled + [0.0] * (20 - throttled)
        row = {"target": "a", "samples": [{"readings": {"throttled": one}} for one in marks]}
        found = gpu.unthrottled(row | HELD)
        assert ("ratio" in found) is kept
        if not kept:
            assert found["rejected"].startswith("throttled in 10% of the samples")
            assert not gpu.settled(found | AT, "c")
            assert gpu.summarise([found])[1] is False

    def test_correctness_comes_first_and_the_kernels_last(self, gpu):
        names = gpu.targets(list(gpu.makers()), False)
        groups = list(dict.fromkeys(name.split("/")[0] for name in names))
        assert groups[:2] == ["correctness", "gpt2"]
        assert groups[-1] == "kernels"
        assert len(names) == len(set(names)) >= 60


class TestCorrectness:
    @pytest.fixture
    def suites(self, payload):
        return import_module("benchmarks.gpu_suites")

    def test_every_group_has_its_files(self, suites):
        for group in suites.GROUPS:
            assert all((PAYLOAD / file).is_file() for file in suites.files(group))

    def test_a_suite_that_is_gone_is_missed(self, suites, monkeypatch):
        monkeypatch.setitem(suites.GROUPS, "moe", ("no_such",))
        with pytest.raises(FileNotFoundError, match="no suite is called test_no_such"):
            suites.files("moe")

    @pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "assert False"])
    def test_its_tests_are_counted_also_of_one_that_dies(
        self, gpu, suites, monkeypatch, tmp_path, end
    ):
        file = tmp_path / "test_x.py"
        lines = ["import os, pytest", "def test_a(): pass", "def test_b(): pytest.skip()"]
        file.write_text("\n".join([*lines, f"def test_c(): {end}"]))
        command = [*suites.words("correctness/moe")[:8], "--rootdir", str(tmp_path), str(file)]
        monkeypatch.setattr(suites, "words", lambda target: command)
        told = gpu.suites_in_a_process("correctness/moe", 60.0)
        assert (told["passed"], told["skipped"]) == (1, 1)
        assert told["failed"] == ("assert" in end)
        assert ("SIGKILL" in told.get("error", "")) is ("kill" in end)
        assert gpu.summarise([told])[1] is False

    def test_what_passes_is_good(self, gpu, suites):
        told = suites.row("correctness/moe", "suites/a.py::b PASSED [ 50%]\n", None)
        assert gpu.summarise([told])[1] is True
        assert gpu.settled(told | AT, "c")


class TestOneBenchmark:
    @pytest.fixture
    def answer(self, gpu, tmp_path, monkeypatch):
        """What the parent makes of a child that runs this Python, told where the outcome goes."""

        def answer(code: str, **options) -> dict:
            script, python = tmp_path / "child.py", tmp_path / "python"
            script.write_text(f"import os, pathlib, sys, time\n{code}")
            python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$8"\n')
            python.chmod(0o755)
            monkeypatch.setattr(sys, "executable", str(python))
            given = {"device": "cpu", "small": True, "limit": 120.0} | options
            return gpu.in_a_process("d", Namespace(**given))

        return answer

    def test_one_that_hangs_costs_only_itself(self, gpu, answer):
        hung = answer("time.sleep(60)", limit=0.3)
        assert hung["error"] == "still running after 0.3 s"
        line, good = gpu.summarise([hung, {"target": "x", "refused": "needs sm_90"}])
        expected = "gpu: 0 of 0 goals met, 0 benchmarks held, 1 refused, 1 failed"
        assert (line, good) == (expected, False)

    def test_a_child_that_fails_is_told_of_with_its_words(self, gpu, tmp_path):
        broken = gpu.in_a_process("no such benchmark", gpu.parse(words(tmp_path)))
        assert broken["exit"] == 1
        assert "KeyError: 'no such benchmark'" in broken["error"]

    def test_one_that_was_killed_is_told_of_with_a_reason(self, answer):
        killed = answer("os.kill(os.getpid(), 9)")
        assert killed["error"] == "ended by SIGKILL, which the kernel sends for want of memory"

    def test_enough_of_its_words_is_kept(self, answer):
        broken = answer("sys.exit('RuntimeError: no\\n' + 'frame\\n' * 1000)")
        assert "RuntimeError: no" in broken["error"]

    @pytest.mark.parametrize(
        ("end", "why"),
        [("os.kill(os.getpid(), 11)", "ended by SIGSEGV"), ("time.sleep(60)", "still running")],
    )
    def test_a_profiler_that_takes_the_child_along_costs_no_outcome(self, answer, end, why):
        kept = 'pathlib.Path(sys.argv[1]).write_text(\'{"ratio": 2, "unprofiled": ""}\')'
        told = answer(f"{kept}\n{end}", limit=15.0)
        assert told["ratio"] == 2
        assert told["unprofiled"].startswith(why)

    @pytest.mark.parametrize("error", [AssertionError, RuntimeError, KeyboardInterrupt])
    def test_a_profiler_that_fails_costs_no_outcome(self, gpu, torch, tmp_path, monkeypatch, error):
        bench = import_module("torchbridge.bench")
        arm = bench.Arm("a", lambda: torch.ones(8) + 1)
        benchmark = {"name": "d", "subject": arm, "baseline": arm, "equal": bench.identical}
        benchmark = bench.Benchmark(device=torch.device("cpu"), goal=99.0, **benchmark)

        def broken(*_) -> None:
            raise error("CUPTI says no")

        monkeypatch.setattr(gpu, "makers", lambda: {"d": lambda device, small: benchmark})
        monkeypatch.setattr(gpu, "profile_of", broken)
        with suppress(KeyboardInterrupt):
            gpu.run_child("d", torch.device("cpu"), True, tmp_path / "o.json")
        told = json.loads((tmp_path / "o.json").read_text())
        assert told["ratio"]["median"] > 0
        assert told["target"] == "d"
        expected = "" if error is KeyboardInterrupt else f"{error.__name__}: CUPTI says no"
        assert told["unprofiled"] == expected

    @pytest.mark.parametrize(
        ("name", "asked", "limit"),
        [("gpt2", [], 540), ("moe/decode", [], 240), ("gpt2", ["--limit", "9"], 9)],
    )
    def test_limits(self, gpu, tmp_path, monkeypatch, name, asked, limit):
        seen = []
        monkeypatch.setattr(gpu, "child", lambda words, log, s: seen.append(s) or log.touch())
        gpu.in_a_process(name, gpu.parse(words(tmp_path, *asked)))
        assert seen == [limit]


class TestVerdict:
    def test_nothing_held_is_not_good(self, gpu):
        assert gpu.summarise([{"target": "x", "refused": "needs sm_90"}])[1] is False
        assert gpu.summarise([{"target": "a"} | HELD])[1] is True

    @pytest.mark.parametrize(
        ("absent", "more", "device", "code"),
        [
            (True, [], "cuda", 1),
            (True, ["--allow-refused"], "cuda", 0),
            (False, [], "cuda", 0),
            (True, [], "cpu", 0),
        ],
    )
    def test_an_absent_baseline_fails_unless_allowed(
        self, gpu, said, tmp_path, capsys, monkeypatch, absent, more, device, code
    ):
        monkeypatch.setattr(gpu, "why_not", lambda device, small: None)
        monkeypatch.setattr(gpu, "describe", str)
        said["b"] = {"target": "b", "refused": "transformers is not installed", "absent": absent}
        assert gpu.main(["--out", str(tmp_path), "--device", device, *more]) == code
        text = capsys.readouterr().out
        assert "refused: b\n" in text
        assert ("--allow-refused" in text) == bool(code)

    def test_which_refusals_are_for_want_of_a_baseline(self, gpu):
        kinds = import_module("benchmarks.cpu_comparisons"), import_module("torchbridge.kernels")
        for error, absent in ((kinds[0].NotHereError, True), (kinds[1].KernelRefused, False)):
            with pytest.raises(gpu.RefusedError) as found, gpu.refusing():
                raise error("no")
            assert found.value.absent is absent


def a_row(**more) -> dict:
    """A benchmark of a kernel as gpu.json has it."""
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
    "transformers": "5.23.0",
    "copy_bytes_per_s": 2e12,
    "peak_flops": {"bf16": 989e12, "fp8": None},
}


class TestPage:
    @pytest.fixture
    def gpu_page(self, payload):
        return import_module("benchmarks.gpu_page")

    def test_rows(self, gpu_page):
        met = a_row(memory_goal=0.3, memory_goal_met=False)
        unequal = {k: v for k, v in a_row(equality={"error": 0.5}).items() if k != "ratio"}
        benchmarks = [met, unequal, {"target": "gpt2", "error": "Traceback\nKilled | now\n"}]
        said = "x.AcceleratorError: CUDA error: y\nFor debugging consider RuntimeError\n\n"
        benchmarks += [{"target": "fp8", "error": f"ValueError: before\n{said}"}]
        text = gpu_page.page({"machine": MACHINE, "small": False, "benchmarks": benchmarks})
        expected = "1.200 [1.100, 1.300] | 1x met, memory 0.3x **missed** | "
        expected += "50% of peak bandwidth, 62% of a copy | 3 MB / not known |"
        assert expected in text
        assert "| **not equal**: 0.5 |" in text
        assert "| **failed**: Killed \\| now |" in text
        assert "| **failed**: x.AcceleratorError: CUDA error: y |" in text
        assert "TFLOP/s: bf16 989\n" in text
        assert "- transformers: 5.23.0\n" in text
        assert "No figure here" not in text

    def test_what_falls_short_has_its_profile(self, gpu_page):
        kernels = [{"name": "void gemm<1|2>", "us": 12.34, "calls": 2.0}]
        row = a_row(profile={"subject": kernels, "baseline": []})
        unknown = a_row(unprofiled="failed with -11")
        text = gpu_page.page(
            {"machine": MACHINE, "small": False, "benchmarks": [row, a_row(), unknown]}
        )
        assert "| kernels/x/compile |  |  |  | not known: failed with -11 |" in text
        assert "| kernels/x/compile | subject | 12.3 | 2 | `void gemm<1\\|2>` |" in text
        assert text.count("| subject |") == 1

    def test_a_goal_met_by_the_median_only_says_so(self, gpu_page):
        row = a_row(interval=(0.9, 1.3))
        text = gpu_page.page({"machine": MACHINE, "small": False, "benchmarks": [row]})
        assert "1x met by the median" in text
