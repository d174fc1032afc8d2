"""The 14 diagnostics: each tells the truth here, and each can warn or fail."""

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
from torchbridge.doctor import DIAGNOSTICS, Patient, diagnose
from torchbridge.hardware import Hardware, probe

CPU = torch.device("cpu")
GIB = 2**30


@pytest.fixture
def patient(device) -> Patient:
    """This machine; torch.compile without building kernels, which one test does."""

    def compiled(function):
        return torch.compile(function, backend="aot_eager")

    return Patient(device, probe(device), compile=compiled)


@pytest.fixture
def bare(patient) -> Patient:
    """The same without an accelerator."""
    return dataclasses.replace(patient, device=CPU, hardware=probe(CPU))


def absent(*names: str):
    """An import that does not find these."""

    def load(name: str):
        if name in names:
            raise ImportError(f"No module named {name!r}")
        return importlib.import_module(name)

    return load


class TestBasic:
    def test_python(self, patient):
        finding = doctor.check_python(patient)
        assert (finding.status, finding.details["version"]) == ("pass", sys.version.split()[0])

    @pytest.mark.parametrize(("version", "status"), [((3, 9, 18), "fail"), ((3, 10, 0), "pass")])
    def test_python_version(self, patient, version, status):
        finding = doctor.check_python(dataclasses.replace(patient, python=version))
        assert finding.status == status
        assert bool(finding.recommendation) == (status == "fail")

    @pytest.mark.parametrize(
        ("version", "status"),
        [
            (torch.__version__, "pass"),
            ("2.6.0+cu124", "fail"),
            ("2.7.0", "pass"),
            ("2.10.0a0+git12", "pass"),
            ("1.13.1", "fail"),
            ("unknown", "fail"),
        ],
    )
    def test_torch_version(self, patient, version, status):
        finding = doctor.check_torch(dataclasses.replace(patient, torch_version=version))
        assert finding.status == status
        assert version in finding.message

    def test_numpy(self, patient):
        numpy = importlib.import_module("numpy")
        finding = doctor.check_numpy(patient)
        assert (finding.status, finding.details["version"]) == ("pass", numpy.__version__)

    def test_numpy_absent(self, patient):
        finding = doctor.check_numpy(dataclasses.replace(patient, load=absent("numpy")))
        assert (finding.status, finding.recommendation) == ("fail", "install numpy")

    def test_package(self, patient):
        finding = doctor.check_package(patient)
        assert finding.status == "pass", finding.details
        files = list(Path(torchbridge.__path__[0]).rglob("*.py"))
        assert finding.details["modules"] == len(files) - 1  # all but torchbridge itself

    def test_package_broken(self, patient):
        load = absent("torchbridge.peaks")
        finding = doctor.check_package(dataclasses.replace(patient, load=load))
        assert (finding.status, list(finding.details["broken"])) == ("fail", ["torchbridge.peaks"])


class TestHardware:
    def test_cpu_only_warns(self, bare):
        for check in (
            doctor.check_gpu,
            doctor.check_capability,
            doctor.check_memory,
        ):
            finding = check(bare)
            assert (finding.status, finding.message[:7]) == ("warning", "no GPU:")

    def test_gpu(self, patient):
        wanted = "warning" if patient.device.type == "cpu" else "pass"
        assert doctor.check_gpu(patient).status == wanted

    @pytest.mark.parametrize(
        ("hardware", "status"),
        [
            (Hardware.nvidia((5, 2)), "fail"),
            (Hardware.nvidia((6, 1)), "warning"),
            (Hardware.amd("gfx803"), "fail"),
            (Hardware.amd("gfx942"), "pass"),  # its 16-bit products are tried on this device
        ],
        ids=lambda v: getattr(v, "target", v),
    )
    def test_capability(self, patient, hardware, status):
        finding = doctor.check_capability(dataclasses.replace(patient, hardware=hardware))
        assert finding.status == status

    def test_capability_torch_is_not_built_for(self, patient):
        future = dataclasses.replace(patient, hardware=Hardware.nvidia((99, 0)))
        finding = doctor.check_capability(future)
        portable = any(name.startswith("compute") for name in torch.cuda.get_arch_list())
        assert finding.status == ("pass" if portable else "fail")  # PTX is for later chips, too

    @pytest.mark.parametrize(("gib", "status"), [(0.5, "warning"), (3.9, "warning"), (16, "pass")])
    def test_memory(self, patient, gib, status):
        hardware = Hardware.nvidia((8, 0), memory_bytes=int(gib * GIB))
        finding = doctor.check_memory(dataclasses.replace(patient, hardware=hardware))
        assert (finding.status, finding.details["memory_bytes"]) == (status, int(gib * GIB))

    def test_cores(self, patient):
        finding = doctor.check_cores(patient, usable=1024)
        assert (finding.status, finding.details["usable"]) == ("pass", 1024)
        assert finding.details["present"] == os.cpu_count()

    def test_threads_over_cores(self, patient):
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            finding = doctor.check_cores(patient, usable=2)
            assert (finding.status, finding.details["threads"]) == ("warning", 3)
            assert finding.recommendation == "set OMP_NUM_THREADS=2"
        finally:
            torch.set_num_threads(threads)


class TestOptimization:
    def test_compile(self, patient):
        finding = doctor.check_compile(patient)
        assert (finding.status, finding.details["error"] <= 1e-6) == ("pass", True)
        assert Patient(patient.device, patient.hardware).compile is torch.compile

    def test_compile_without_compiler(self, patient):
        def compile_(function):
            raise RuntimeError("no C++ compiler\nand more")

        finding = doctor.check_compile(dataclasses.replace(patient, compile=compile_))
        assert finding.status == "warning"
        assert finding.message == "torch.compile: RuntimeError: no C++ compiler"

    def test_compile_wrong(self, patient):
        def compile_(function):
            return lambda x: function(x) * 1.01

        finding = doctor.check_compile(dataclasses.replace(patient, compile=compile_))
        assert finding.status == "fail"
        assert finding.details["error"] == pytest.approx(0.01, rel=1e-3)

    def test_torchscript(self, patient):
        finding = doctor.check_torchscript(patient)
        assert finding.status == "pass"
        assert finding.details["error"] <= 1e-6

    def test_optimization(self, patient):
        finding = doctor.check_optimization(patient)
        assert finding.status == "pass", finding.message
        assert "fold_conv_bn" in finding.message
        assert finding.details["error"] <= 1e-4

    def test_optimization_that_does_nothing(self, patient):
        def create_backend(device):
            def prepare_model(model, level):
                return SimpleNamespace(model=model, passes=(), applied=())

            return SimpleNamespace(prepare_model=prepare_model, to_device=lambda x: x)

        backends = SimpleNamespace(create_backend=create_backend)
        finding = doctor.check_optimization(dataclasses.replace(patient, load=lambda _: backends))
        assert (finding.status, finding.message[:14]) == ("fail", "no pass change")


class TestAdvanced:
    def test_triton(self, bare):
        finding = doctor.check_triton(bare)
        assert finding.status == "warning"
        assert finding.message.startswith("Triton")

    def test_triton_absent(self, patient):
        finding = doctor.check_triton(dataclasses.replace(patient, load=absent("triton")))
        assert (finding.status, finding.message) == ("warning", "Triton is not installed")

    def test_flash_attention(self, patient):
        finding = doctor.check_flash(patient)
        if patient.device.type == "cpu" or (patient.hardware.capability or (0, 0)) >= (8, 0):
            assert (finding.status, finding.details["error"] <= 5e-3) == ("pass", True)
        assert finding.status in ("pass", "warning")

    def test_toolkit_absent(self, patient):
        finding = doctor.check_toolkit(dataclasses.replace(patient, find_program=lambda _: None))
        assert (finding.status, finding.message) == ("warning", "no nvcc on PATH")

    @pytest.mark.parametrize(
        ("script", "status"),
        [
            ('echo "Cuda compilation tools, release 12.9, V12.9.41"', "pass"),
            ("echo broken >&2; exit 1", "fail"),
            ("echo no release here", "fail"),
        ],
    )
    def test_toolkit(self, patient, tmp_path, monkeypatch, script, status):
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        program = tmp_path / "nvcc"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        found = dataclasses.replace(patient, find_program=lambda _: str(program))
        assert doctor.check_toolkit(found).status == status

    def test_toolkit_of_another_version(self, patient, tmp_path, monkeypatch):
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        program = tmp_path / "nvcc"
        program.write_text("#!/bin/sh\necho release 11.8,\n")
        program.chmod(0o755)
        found = dataclasses.replace(patient, find_program=lambda _: str(program))
        finding = doctor.check_toolkit(found)
        assert (finding.status, finding.details["version"]) == ("warning", "11.8")


class TestDiagnose:
    def test_fourteen(self, patient):
        reports = diagnose(patient=patient)
        assert {r.title: len(r.findings) for r in reports} == {
            "basic": 4,
            "hardware": 4,
            "optimization": 3,
            "advanced": 3,
        }
        names = [finding.name for report in reports for finding in report]
        assert len(set(names)) == 14
        for finding in (finding for report in reports for finding in report):
            assert finding.status in ("pass", "warning", "fail")
            assert bool(finding.recommendation) == (finding.status != "pass"), finding.name

    def test_one_category(self, patient):
        (report,) = diagnose(["basic"], patient)
        assert tuple(finding.name for finding in report) == tuple(DIAGNOSTICS["basic"])
        assert report.score == "4/4"

    def test_unknown_category(self, patient):
        with pytest.raises(ValueError, match="one of basic, hardware, optimization, advanced"):
            diagnose(["network"], patient)

    def test_a_check_that_throws_has_failed(self, patient):
        broken = dataclasses.replace(patient, torch_version=None)
        (report,) = diagnose(["basic"], broken)
        assert (report.ok, report.names("fail")) == (False, ("PyTorch Version",))
        assert report["PyTorch Version"].message.startswith("TypeError: ")
        assert report["NumPy Version"].status == "pass"  # the others were still made

    def test_exit_code(self, monkeypatch, capsys):
        assert doctor.main(["--category", "basic"]) == 0
        assert "4/4 passed, 0 warnings, 0 failed" in capsys.readouterr().out
        monkeypatch.setitem(sys.modules, "numpy", None)
        assert doctor.main(["--category", "basic"]) == 1
        shown = capsys.readouterr().out
        assert "[x] NumPy Version: NumPy is not installed\n      -> install numpy" in shown

    def test_json(self, capsys):
        assert doctor.main(["--category", "basic", "--json"]) == 0
        (report,) = json.loads(capsys.readouterr().out)
        assert (report["title"], report["ok"], report["score"]) == ("basic", True, "4/4")
        fields = {"name", "status", "message", "details", "recommendation"}
        assert all(set(finding) == fields for finding in report["findings"])
