"""Stamps, fallbacks and facts about the machine in any line of a log."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.result_parsers.log_notices import (
    KEPT,
    EnvironmentLines,
    LogNotices,
    is_notable,
)
from orchestrator.domain.parsed_results import (
    ParsedEnvironment,
    ParsedFallback,
    ParsedProblem,
    ParsedVersion,
)
from tests.unit.result_parsers.pytest_logs import GOLDEN

FALLBACK = (
    "/home/user/pkg/flex.py:393: UserWarning: FlexAttention failed: indices are on cpu (cpu). "
    "Falling back to standard attention."
)


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("  FlexAttention Demo - KernelPyTorch v0.4.4", ParsedVersion("KernelPyTorch", "0.4.4")),
        ("kernel_pytorch v0.4.6", ParsedVersion("kernel_pytorch", "0.4.6")),
        ("*Report by TorchBridge v0.4.40rc1*", ParsedVersion("TorchBridge", "0.4.40rc1")),
    ],
)
def test_a_stamp_is_a_name_and_a_version(line: str, stamp: ParsedVersion) -> None:
    assert LogNotices().see(line) == (stamp,)


@pytest.mark.parametrize(
    "line",
    [
        "CUDA v12.8",
        "requires KernelPyTorch v0.5.0",
        "attention:flash_attention_v3:v3.0. Previous backend: cuda",
        "path/KernelPyTorch v1",
        "see docs/foo v2-final",
    ],
)
def test_what_is_no_stamp(line: str) -> None:
    assert LogNotices().see(line) == ()


def test_a_fallback_at_use_degrades_with_its_sentence_and_without_its_place() -> None:
    said = LogNotices().see(FALLBACK)
    assert said == (
        ParsedFallback(
            "FlexAttention failed: indices are on cpu (cpu). Falling back to standard attention."
        ),
    )


def test_a_fallback_is_told_once_whatever_its_numbers_are() -> None:
    remarks = LogNotices()
    assert remarks.see("step 1: fell back to eager")
    assert remarks.see("step 2: fell back to eager") == ()


def test_the_source_line_below_a_warning_says_nothing() -> None:
    line = '  warnings.warn(f"FlexAttention failed: {e}. Falling back to standard attention.")'
    assert LogNotices().see(line) == ()


def test_a_suite_is_not_degraded_by_a_warning() -> None:
    (said,) = LogNotices(suite=True).see(FALLBACK)
    assert isinstance(said, ParsedProblem)
    assert said.level == "warning"
    assert "Falling back to standard attention" in said.message


@pytest.mark.parametrize(
    "line",
    [
        "x.py:3: UserWarning: Transformer Engine not available - it will use fallback parts",
        "x.py:3: UserWarning: Hardware abstraction import failed: No module named 'a.b'",
    ],
)
def test_a_part_missing_at_import_is_only_remarked(line: str) -> None:
    (said,) = LogNotices().see(line)
    assert isinstance(said, ParsedProblem)
    assert said.level == "warning"


@pytest.mark.parametrize(
    "line",
    [
        "CUDA not available. Using CPU fallback.",
        "WARNING: GPU is unavailable, running on CPU",
        "WARNING:root:kernel missing, falling back to eager",
    ],
)
def test_running_on_another_device_degrades(line: str) -> None:
    (said,) = LogNotices().see(line)
    assert isinstance(said, ParsedFallback)


@pytest.mark.parametrize(
    "line",
    [
        "tests/a.py::test_cuda_not_available_graceful_fallback PASSED [ 78%]",
        "all kernels ran without falling back",
        "x.py:28: FutureWarning: communication.py has been refactored into modules",
        "feedback loop closed",
    ],
)
def test_what_is_no_fallback(line: str) -> None:
    assert LogNotices().see(line) == ()


def test_fallbacks_can_be_configured() -> None:
    remarks = LogNotices(fallbacks=(r"slow path",), absences=())
    assert isinstance(remarks.see("taking the slow path: instead of the fast")[0], ParsedFallback)


def test_available_and_not_used_is_remarked() -> None:
    line = "Stats: {'flex_attention_available': True, 'using_flex_attention': False}"
    (said,) = LogNotices().see(line)
    assert said == ParsedProblem(
        "warning", "it says that flex_attention is available, and that it is not used"
    )


def test_a_torch_build_names_its_cuda_and_says_that_it_is_derived() -> None:
    (said,) = LogNotices().see("PyTorch Version: 2.7.1+cu128")
    assert said == ParsedEnvironment(
        {
            "torch": "2.7.1+cu128",
            "cuda": "12.8",
            "derived": {"cuda": "the build of torch 2.7.1+cu128"},
        }
    )


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("CUDA Version: 13.0", {"cuda": "13.0"}),
        ("torch: 2.9.1+cpu", {"torch": "2.9.1+cpu"}),
        ("PyTorch 2.6.0+rocm6.1", {
            "torch": "2.6.0+rocm6.1", "hip": "6.1",
            "derived": {"hip": "the build of torch 2.6.0+rocm6.1"},
        }),
        ("Python: 3.12.1", {"python": "3.12.1"}),
        ("platform linux -- Python 3.10.12, pytest-9.0.2, pluggy-1.6.0 -- /usr/bin/python3",
         {"python": "3.10.12", "packages": {"pytest": "9.0.2", "pluggy": "1.6.0"}}),
        ("metadata: {'Platform': 'Linux-6.8.0-1045-gcp-x86_64-with-glibc2.35'}",
         {"machine": {"kernel": "6.8.0-1045-gcp", "machine": "x86_64",
                      "libc": ["glibc", "2.35"]}}),
        ("| NVIDIA-SMI 580.105.08    Driver Version: 580.105.08    CUDA Version: 13.0 |",
         {"machine": {"devices": [{"driver": "580.105.08"}]}}),
        ("OS: Ubuntu 22.04.5 LTS", {"machine": {"os": "Ubuntu 22.04.5 LTS"}}),
        ("GPU: NVIDIA L4 (24GB)",
         {"machine": {"devices": [{"vendor": "nvidia", "name": "NVIDIA L4"}]}}),
    ],
)  # fmt: skip
def test_facts_of_the_machine(line: str, facts: dict[str, object]) -> None:
    assert LogNotices().see(line) == (ParsedEnvironment(facts),)


def test_the_device_grows_as_more_is_said_of_it() -> None:
    remarks = LogNotices()
    remarks.see("  GPU: NVIDIA L4")
    (said,) = remarks.see("  Hardware FP8: Limited (Compute 8.9)")
    device = {"vendor": "nvidia", "name": "NVIDIA L4", "compute_capability": "8.9"}
    assert said == ParsedEnvironment({"machine": {"devices": [device]}})
    assert remarks.see("GPU: NVIDIA L4") == ()


@pytest.mark.parametrize(
    "line",
    [
        "requires compute capability: 9.0",
        "Device: cuda",
        "E4M3 Quantization: Native PyTorch 2.1+",
        "needs torch: 2.9.0",
        "GPU Memory: 23 GB",
        "CUDA available: True",
    ],
)
def test_what_is_no_fact_of_the_machine(line: str) -> None:
    assert LogNotices().see(line) == ()


@given(st.text(max_size=300))
def test_any_line_is_read(line: str) -> None:
    for suite in (False, True):
        LogNotices(suite=suite).see(line)


@pytest.mark.parametrize(
    "line",
    [
        "gpu not available " * 4000, "a v1." + "1." * 30_000, "'a_available': True" * 3000,
        "x" * 65_000 + " v1.2.3", "'Platform': 'Linux-" + "1-" * 30_000, "torch " * 10_000,
        "fall back not " * 5_000, " " * 60_000 + "gpu:",
    ],
)  # fmt: skip
def test_long_lines_take_no_longer_than_they_should(line: str) -> None:
    begin = time.thread_time()
    LogNotices().see(line)
    assert time.thread_time() - begin < 0.5


def test_memory_stays_bounded() -> None:
    remarks = LogNotices()
    names = ("".join(chr(97 + int(d)) for d in str(n)) for n in range(2 * KEPT))
    said = [s for name in names for s in remarks.see(f"{name} failed, falling back to eager")]
    assert len(said) == KEPT


FACTS = (
    "TORCH version: 2.7.0+cu128", "CUDA: 12.8", "Python 3.10.12", "OS: Ubuntu 22.04", "os = Debian",
    "platform linux -- Python 3.10.12, pytest-9.0.2, pluggy-1.6.0", "Accelerator: TPU v5e",
    "{'Platform': 'Linux-6.8.0-1021-gcp-x86_64-with-glibc2.35'}", "GPU 0: NVIDIA L4",
    "Device = Tesla T4", "Compute Capability: 8.9", "NVIDIA L4 (compute 8.9)", "Driver: 550.54.15",
)  # fmt: skip


@pytest.mark.parametrize("line", FACTS)
def test_no_line_with_a_fact_is_passed_over_unread(line: str) -> None:
    assert EnvironmentLines().see(line)
    assert is_notable(line.lower())
    [said] = LogNotices().see(line)
    assert isinstance(said, ParsedEnvironment)


def test_no_line_of_a_real_log_is_passed_over_unread() -> None:
    lines = {line for log in GOLDEN.iterdir() for line in log.read_text().splitlines()}
    facts = [line for line in lines if EnvironmentLines().see(line)]
    assert len(facts) > 5
    assert [line for line in facts if not is_notable(line.lower())] == []
