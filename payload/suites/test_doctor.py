"""The 14 diagnostics: each is right on this machine, and each can warn or fail."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import torchbridge
from torchbridge import doctor
from torchbridge.doctor import DIAGNOSTICS, SystemUnderTest, diagnose
from torchbridge.hardware import Hardware, probe

CPU = torch.device("cpu")
PYTHON, TORCH = doctor.check_python, doctor.check_torch


def absent(name: str):
    """Return an import function that does not find the module `name`."""

    def load(wanted: str):
        if wanted == name:
            raise ImportError(f"No module named {name!r}")
        return importlib.import_module(wanted)

    return load


def failing(function):
    """Raise the error of a missing compiler."""
    raise RuntimeError("no C++ compiler\nand more")


def wrong(function):
    """Return the function with results that are off by 1 %."""
    return lambda x: function(x) * 1.01


def idle(name: str):
    """Return a library whose backends change nothing."""

    def create_backend(device):
        prepared = SimpleNamespace(model=lambda x: x, passes=(), applied=())
        return SimpleNamespace(prepare_model=lambda *_, **__: prepared, to_device=lambda x: x)

    return SimpleNamespace(create_backend=create_backend)


def of(**facts: object) -> dict:
    """Return changes that replace the system's hardware by an sm_80 chip with these properties."""
    return {"hardware": Hardware.nvidia((8, 0), **facts)}


GIB = 2**30
CASES = [  # check, changes of the system, status, part of the message
    (PYTHON, {}, "pass", sys.version.split()[0]),
    (PYTHON, {"python": (3, 10, 0)}, "pass", "3.10.0"),
    (PYTHON, {"python": (3, 9, 18)}, "fail", "3.9.18 is older than 3.10"),
    (TORCH, {}, "pass", torch.__version__),
    (TORCH, {"torch_version": "2.7.0"}, "pass", "2.7.0"),
    (TORCH, {"torch_version": "2.10.0a0+git12"}, "pass", "2.10.0a0+git12"),
    (TORCH, {"torch_version": "2.6.0+cu124"}, "fail", "is older than 2.7"),
    (TORCH, {"torch_version": "unknown"}, "fail", "unknown"),
    (doctor.check_numpy, {}, "pass", importlib.import_module("numpy").__version__),
    (doctor.check_numpy, {"load": absent("numpy")}, "fail", "NumPy is not installed"),
    (doctor.check_package, {"load": absent("torchbridge.peaks")}, "fail", "torchbridge.peaks"),
    (doctor.check_gpu, {"device": CPU, "hardware": Hardware.cpu()}, "warning", "no GPU:"),
    (doctor.check_capability, {"hardware": Hardware.cpu()}, "warning", "no GPU:"),
    (doctor.check_capability, {"hardware": Hardware.nvidia((5, 2))}, "fail", "not supported"),
    (doctor.check_capability, {"hardware": Hardware.nvidia((6, 1))}, "warning", "tensor cores"),
    (doctor.check_capability, {"hardware": Hardware.amd("gfx942")}, "pass", "gfx942"),
    (doctor.check_memory, {"hardware": Hardware.cpu()}, "warning", "no GPU:"),
    (doctor.check_memory, of(memory_bytes=4 * GIB - 1), "warning", "4.0 GiB"),
    (doctor.check_memory, of(memory_bytes=16 * GIB), "pass", "16.0 GiB"),
    (doctor.check_compile, {}, "pass", "torch.compile: relative error"),
    (doctor.check_compile, {"compile": failing}, "warning", "RuntimeError: no C++ compiler"),
    (doctor.check_compile, {"compile": wrong}, "fail", "relative error 1.0e-02"),
    (doctor.check_torchscript, {}, "pass", "TorchScript"),
    (doctor.check_optimization, {}, "pass", "fold_conv_bn"),
    (doctor.check_optimization, {"load": idle}, "fail", "no pass changed"),
    (doctor.check_triton, {"device": CPU}, "warning", "Triton"),
    (doctor.check_triton, {"load": absent("triton")}, "warning", "Triton is not installed"),
    (doctor.check_toolkit, {"find_program": lambda _: None}, "warning", "no nvcc on PATH"),
]


@pytest.fixture
def system(device) -> SystemUnderTest:
    """Return this machine's system, with torch.compile without code generation, which is fast."""

    def compiled(function):
        return torch.compile(function, backend="aot_eager")

    return SystemUnderTest(device, probe(device), compile=compiled)


@pytest.mark.parametrize(("check", "changes", "status", "words"), CASES)
def test_diagnostic(system, check, changes, status, words):
    finding = check(dataclasses.replace(system, **changes))
    assert finding.status == status
    assert words in finding.message
    assert bool(finding.recommendation) == (status != "pass")
    limit = 1e-4 if check is doctor.check_optimization else 1e-6
    assert status != "pass" or finding.details.get("error", 0) <= limit


class TestHere:
    def test_package(self, system):
        finding = doctor.check_package(system)
        assert finding.status == "pass", finding.details
        files = list(Path(torchbridge.__path__[0]).rglob("*.py"))
        assert finding.details["modules"] == len(files) - 1  # all but torchbridge itself

    def test_gpu(self, system):
        wanted = "warning" if system.device.type == "cpu" else "pass"
        assert doctor.check_gpu(system).status == wanted

    def test_capability_torch_is_not_built_for(self, system):
        future = dataclasses.replace(system, hardware=Hardware.nvidia((99, 0)))
        finding = doctor.check_capability(future)
        portable = any(name.startswith("compute") for name in torch.cuda.get_arch_list())
        assert finding.status == ("pass" if portable else "fail")  # PTX is for later chips, too

    def test_cores(self, system):
        finding = doctor.check_cores(system, usable=1024)
        assert (finding.status, finding.details["usable"]) == ("pass", 1024)
        assert finding.details["present"] == os.cpu_count()
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            finding = doctor.check_cores(system, usable=2)
            assert (finding.status, finding.details["threads"]) == ("warning", 3)
            assert finding.recommendation == "set OMP_NUM_THREADS=2"
        finally:
            torch.set_num_threads(threads)

    def test_the_real_compiler_is_the_default(self, system):
        assert SystemUnderTest(system.device, system.hardware).compile is torch.compile

    def test_flash_attention(self, system):
        finding = doctor.check_flash(system)
        if system.device.type == "cpu" or (system.hardware.capability or (0, 0)) >= (8, 0):
            assert (finding.status, finding.details["error"] <= 5e-3) == ("pass", True)
        assert finding.status in ("pass", "warning")

    @pytest.mark.parametrize(
        ("script", "status"),
        [
            ('echo "Cuda compilation tools, release 12.9, V12.9.41"', "pass"),
            ("echo release 11.8,", "warning"),  # torch's is 12.8
            ("echo broken >&2; exit 1", "fail"),
            ("echo no release here", "fail"),
        ],
    )
    def test_toolkit(self, system, tmp_path, monkeypatch, script, status):
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        program = tmp_path / "nvcc"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        found = dataclasses.replace(system, find_program=lambda _: str(program))
        assert doctor.check_toolkit(found).status == status


class TestDiagnose:
    def test_fourteen(self, system):
        reports = diagnose(system=system)
        counts = {"basic": 4, "hardware": 4, "optimization": 3, "advanced": 3}
        assert {r.title: len(r.findings) for r in reports} == counts
        assert len({finding.name for report in reports for finding in report}) == 14
        for finding in (finding for report in reports for finding in report):
            assert finding.status in ("pass", "warning", "fail")
            assert bool(finding.recommendation) == (finding.status != "pass"), finding.name

    def test_one_category(self, system):
        (report,) = diagnose(["basic"], system)
        assert tuple(finding.name for finding in report) == tuple(DIAGNOSTICS["basic"])
        with pytest.raises(ValueError, match="one of basic, hardware, optimization, advanced"):
            diagnose(["network"], system)

    def test_a_check_that_throws_has_failed(self, system):
        broken = dataclasses.replace(system, torch_version=None)
        (report,) = diagnose(["basic"], broken)
        assert (report.ok, report.names("fail")) == (False, ("PyTorch Version",))
        assert report["PyTorch Version"].message.startswith("TypeError: ")
        assert report["NumPy Version"].status == "pass"  # the other checks still ran

    def test_exit_code(self, monkeypatch, capsys):
        assert doctor.main(["--category", "basic"]) == 0
        assert "4/4 passed, 0 warnings, 0 failed" in capsys.readouterr().out
        assert doctor.main(["--category", "basic", "--json"]) == 0
        (report,) = json.loads(capsys.readouterr().out)
        assert (report["title"], report["ok"], report["score"]) == ("basic", True, "4/4")
        fields = {"name", "status", "message", "details", "recommendation"}
        assert all(set(finding) == fields for finding in report["findings"])
        monkeypatch.setitem(sys.modules, "numpy", None)
        assert doctor.main(["--category", "basic"]) == 1
        shown = capsys.readouterr().out
        assert "[x] NumPy Version: NumPy is not installed\n      -> install numpy" in shown
