"""A chip's features follow from its capability and properties, never from its name."""

from __future__ import annotations

import itertools
import os
import sys
from types import SimpleNamespace

import pytest
import torch

from suites.numerics import needs_cuda, relative_error
from torchbridge.device import describe, pick_device, synchronise
from torchbridge.hardware import Hardware, nvidia_architecture_has, probe, speeds
from torchbridge.peaks import operations_per_cycle, peak_bandwidth, peak_flops
from torchbridge.timing import timed, warm_up

NVIDIA = [  # capability, architecture; what the first that has it, and all later ones, compute
    ((5, 2), "unsupported", {"fp16": False}),
    ((6, 0), "pascal", {"fp16": True, "tensor_cores": False}),
    ((6, 1), "pascal", {"tensor_cores": False}),
    ((7, 0), "volta", {"tensor_cores": True, "bf16": False}),
    ((7, 2), "volta", {"bf16": False}),
    ((7, 5), "turing", {"int8": True, "bf16": False, "tf32": False}),
    ((8, 0), "ampere", {"bf16": True, "tf32": True, "fp8": False}),
    ((8, 6), "ampere", {"bf16": True, "fp8": False}),
    ((8, 7), "ampere", {"bf16": True, "fp8": False}),
    ((8, 9), "ada", {"fp8": True, "tma": False}),
    ((9, 0), "hopper", {"fp8": True, "tma": True, "fp4": False}),
    ((10, 0), "blackwell", {"fp4": True}),
    ((10, 3), "blackwell", {"fp4": True}),
    ((11, 0), "blackwell", {"fp4": True}),
    ((12, 0), "blackwell", {"fp4": True}),
    ((12, 1), "blackwell", {"fp4": True}),
]
AMD = [  # target, architecture, matrix cores, bf16, fp8
    ("gfx908:sramecc+:xnack-", "cdna", True, True, False),
    ("gfx90a:sramecc+:xnack-", "cdna2", True, True, False),
    ("gfx942:sramecc+:xnack-", "cdna3", True, True, True),
    ("gfx950", "cdna4", True, True, True),
    ("gfx1030", "rdna2", False, False, False),
    ("gfx1100", "rdna3", False, True, False),
    ("gfx1151", "rdna3", False, True, False),
    ("gfx1201", "rdna4", False, True, True),
    ("gfx803", "unsupported", False, False, False),
]
CPUS = [  # flags of /proc/cpuinfo, features
    ("fpu sse2 avx2 fma", set()),
    ("avx2 avx_vnni", {"int8"}),
    ("avx512f avx512_vnni", {"int8"}),
    ("avx512f avx512_vnni avx512_bf16", {"int8", "bf16"}),
    (
        "avx512_fp16 avx512_bf16 amx_bf16 amx_tile amx_int8",
        {"int8", "bf16", "fp16", "matrix_cores"},
    ),
    ("fp asimd asimdhp asimddp bf16 i8mm", {"int8", "bf16", "fp16"}),
]
# Makers' figures, from their data sheets: chip, units, highest clock in GHz, dense TFLOP/s.
NV, AM = Hardware.nvidia, Hardware.amd
SHEETS = {
    "T4": (NV, (7, 5), 40, 1.59, {"fp32": 8.1, "fp16": 65}),
    "V100": (NV, (7, 0), 80, 1.53, {"fp32": 15.7, "fp16": 125}),
    "A100": (NV, (8, 0), 108, 1.41, {"fp32": 19.5, "tf32": 156, "bf16": 312}),
    "A10": (NV, (8, 6), 72, 1.695, {"fp32": 31.2, "bf16": 125}),
    "L4": (NV, (8, 9), 58, 2.04, {"fp32": 30.3, "bf16": 121, "fp8": 242.5}),
    "H100": (NV, (9, 0), 132, 1.83, {"tf32": 495, "bf16": 989, "fp8": 1979}),
    "B200": (NV, (10, 0), 148, 1.86, {"bf16": 2250, "fp8": 4500, "fp4": 9000}),
    "RTX 5090": (NV, (12, 0), 170, 2.407, {"fp32": 104.8, "fp16": 419, "fp8": 838, "fp4": 1676}),
    "MI100": (AM, "gfx908", 120, 1.502, {"fp32": 46.1, "fp16": 184.6, "bf16": 92.3}),
    "MI250X": (AM, "gfx90a", 220, 1.7, {"fp32": 95.7, "bf16": 383}),
    "MI300X": (AM, "gfx942", 304, 2.1, {"fp32": 163.4, "bf16": 1307, "fp8": 2615}),
    "MI355X": (AM, "gfx950", 256, 2.4, {"fp32": 157.3, "bf16": 2517, "fp8": 5033, "fp4": 10066}),
    "v5e": (Hardware.tpu, "v5litepod-8", 1, 1.0, {"bf16": 197}),
}


class TestNVIDIA:
    @pytest.mark.parametrize(("capability", "architecture", "has"), NVIDIA)
    def test_by_capability(self, capability, architecture, has):
        chip = Hardware.nvidia(capability, name="NVIDIA H100 80GB HBM3")  # the name is ignored
        assert (chip.architecture, chip.name) == (architecture, "NVIDIA H100 80GB HBM3")
        assert {feature: chip.has(feature) for feature in has} == has
        assert chip.target == f"sm_{capability[0]}{capability[1]}"

    def test_later_chips_have_what_earlier_ones_had(self):
        chips = [Hardware.nvidia(row[0]) for row in NVIDIA]
        for older, newer in itertools.pairwise(chips):
            assert older.features <= newer.features

    def test_features_of_an_architecture(self):
        names = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
        assert [n for n in names if nvidia_architecture_has(n, "fp8")] == list(names[4:])
        assert [n for n in names if nvidia_architecture_has(n, "bf16")] == list(names[3:])


class TestOthers:
    @pytest.mark.parametrize(("target", "architecture", "matrix_cores", "bf16", "fp8"), AMD)
    def test_amd_by_target(self, target, architecture, matrix_cores, bf16, fp8):
        chip = Hardware.amd(target, name="Radeon Pro")
        assert (chip.architecture, chip.target) == (architecture, target.split(":")[0])
        assert tuple(map(chip.has, ("matrix_cores", "bf16", "fp8"))) == (matrix_cores, bf16, fp8)
        assert chip.capability is None

    @pytest.mark.parametrize(
        ("accelerator", "architecture"),
        [
            ("v4-8", "v4"),
            ("v5litepod-16", "v5e"),
            ("v5p-8", "v5p"),
            ("v6e-1", "v6e"),
            ("tpu7x-4", "v7"),
            ("", "unknown"),
        ],
    )
    def test_tpu_by_accelerator_type(self, accelerator, architecture):
        chip = Hardware.tpu(accelerator)
        assert (chip.vendor, chip.architecture) == ("google", architecture)
        assert (chip.has("bf16"), chip.has("fp16")) == (True, False)

    @pytest.mark.parametrize(("flags", "features"), CPUS)
    def test_cpu_by_flags(self, flags, features):
        assert Hardware.cpu(flags.split()).features == features


class TestProbe:
    def test_cpu(self):
        found = probe(torch.device("cpu"))
        assert (found.vendor, found.units) == ("cpu", os.cpu_count())
        assert found.target == torch.backends.cpu.get_cpu_capability().lower()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert found.memory_bytes == pages

    def test_cpu_agrees_with_torch(self):
        told = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
        if told is None:
            pytest.skip("this torch does not tell of AVX512_BF16")
        if told():
            assert probe(torch.device("cpu")).has("bf16")

    @needs_cuda()
    def test_cuda_properties(self, device):
        found, told = probe(device), torch.cuda.get_device_properties(device)
        assert found.capability == torch.cuda.get_device_capability(device)
        assert (found.memory_bytes, found.units) == (told.total_memory, told.multi_processor_count)
        assert found.has("fp8") == (found.capability >= (8, 9))

    @pytest.mark.parametrize("matrix", [True, False])
    def test_xpu_properties(self, monkeypatch, matrix):
        told = SimpleNamespace(
            name="Max 1550",
            total_memory=2**36,
            max_compute_units=512,
            has_bfloat16_conversions=matrix,
            has_subgroup_matrix_multiply_accumulate=matrix,
        )
        monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: told)
        found = probe(torch.device("xpu"))
        assert (found.vendor, found.memory_bytes, found.units) == ("intel", 2**36, 512)
        assert found.features == ({"fp16", "bf16", "matrix_cores"} if matrix else {"fp16"})

    def test_cuda_speeds_are_in_hertz_and_bytes(self):
        told = SimpleNamespace(
            clock_rate=2_040_000, memory_clock_rate=6_251_000, memory_bus_width=192
        )
        expected = {"clock_hz": 2.04e9, "memory_bytes_per_s": pytest.approx(300e9, rel=1e-3)}
        assert speeds(told) == expected  # an L4's
        assert speeds(SimpleNamespace()) == {"clock_hz": 0.0, "memory_bytes_per_s": 0.0}


class TestPeaks:
    @pytest.mark.parametrize("chip", SHEETS)
    def test_against_data_sheets(self, chip):
        make, which, units, ghz, figures = SHEETS[chip]
        hardware = make(which, units=units, clock_hz=1e9 * ghz)
        told = {number: peak_flops(hardware, number) / 1e12 for number in figures}
        assert told == pytest.approx(figures, rel=0.02)

    def test_unknown_is_none(self):
        hopper = Hardware.nvidia((9, 0), units=132)  # torch without a clock
        assert peak_flops(hopper, "bf16") is None
        assert operations_per_cycle(hopper, "bf16") == 4096
        assert operations_per_cycle(hopper, "fp4") is None
        assert operations_per_cycle(Hardware.nvidia((13, 0)), "bf16") is None
        assert operations_per_cycle(Hardware.cpu(), "fp32") is None
        assert peak_bandwidth(hopper) is None

    @pytest.mark.parametrize("capability", [row[0] for row in NVIDIA if row[0] >= (6, 0)])
    def test_peaks_exist_for_what_is_native(self, capability):
        chip = Hardware.nvidia(capability)
        if operations_per_cycle(chip, "fp32") is None:
            assert capability == (11, 0)  # its data sheet has no figures
            return
        for number in ("bf16", "tf32", "fp8", "fp4"):
            assert (operations_per_cycle(chip, number) is not None) == chip.has(number), number

    def test_bandwidth(self):
        assert peak_bandwidth(Hardware.nvidia((8, 9), memory_bytes_per_s=3e11)) == 3e11
        assert peak_bandwidth(Hardware.tpu("v5p-8")) == 2.765e12

    @needs_cuda()
    def test_no_product_is_faster_than_the_peak(self, device):
        hardware = probe(device)
        peak = peak_flops(hardware, "fp16")
        if peak is None:
            pytest.skip(f"this torch tells no clock of {hardware.target}")
        a = torch.randn(4096, 4096, device=device, dtype=torch.float16)
        warm_up(lambda: a @ a, device, budget_s=2.0)
        best = min(timed(lambda: a @ a, device) for _ in range(10))
        assert 0 < 2 * 4096**3 / best <= peak


class TestDevice:
    def test_variable_overrules(self, monkeypatch):
        monkeypatch.setenv("TORCHBRIDGE_DEVICE", "cpu")
        assert pick_device() == torch.device("cpu")

    @pytest.mark.parametrize("name", ["cuda:99", "xpu:99"])
    def test_absent_device_is_refused(self, monkeypatch, name):
        monkeypatch.setenv("TORCHBRIDGE_DEVICE", name)
        with pytest.raises(RuntimeError, match=rf"device {name} cannot be used"):
            pick_device()

    def test_tpu_without_its_package_is_refused(self, monkeypatch):
        monkeypatch.setenv("TORCHBRIDGE_DEVICE", "xla")
        monkeypatch.setitem(sys.modules, "torch_xla", None)
        with pytest.raises(RuntimeError, match=r"device xla cannot be used: .*torch_xla"):
            pick_device()

    def test_waiting_runs_the_tpus_graph(self, monkeypatch):
        asked = []

        def sync(wait):
            asked.append(wait)

        monkeypatch.setitem(sys.modules, "torch_xla", SimpleNamespace(sync=sync))
        synchronise(torch.device("xla"))
        assert asked == [True]

    def test_waiting_is_for_the_last_result(self, device):
        x = torch.full((64, 64), 1 / 64, dtype=torch.float64, device=device)
        for _ in range(20):
            x = x @ x
        synchronise(device)
        assert relative_error(x, torch.full((64, 64), 1 / 64, dtype=torch.float64)) < 1e-12

    def test_description(self, device):
        line = describe(device)
        assert line.startswith(f"{device}: ")
        assert line.endswith(f"torch {torch.__version__}")
        if device.type == "cpu":
            assert f"CPU, {torch.get_num_threads()} threads" in line
