"""Numbers of the NVIDIA backend: levels, FP8, fused layers and the roofline, against float64."""

from __future__ import annotations

import copy
import dataclasses
import itertools

import pytest
import torch
from torch import nn

from suites.backend_models import (
    AMPERE,
    BLACKWELL,
    HOPPER,
    L4,
    in_float64,
    mlp,
)
from suites.numerics import assert_close, rms_error
from suites.nvidia_fakes import backend
from torchbridge.backends import errors
from torchbridge.backends.fp8_compiler import DATA_SHEETS
from torchbridge.backends.nvidia import FP8Compiler, NVIDIABackend, fuse_linear_activation, prove
from torchbridge.config import Config
from torchbridge.hardware import Hardware
from torchbridge.kernels import FusedLinearGELU, FusedLinearSiLU
from torchbridge.passes import Setting
from torchbridge.peaks import peak_flops

FP8_ASKED = Config().update(hardware={"nvidia": {"fp8_enabled": True}})


class TestLevels:
    def test_fp8_only_where_asked(self, device):
        model, x = mlp().to(device), torch.randn(64, 128, device=device)
        expected = in_float64(model, x)
        plain = backend(device, L4).prepare_model(copy.deepcopy(model), level="aggressive")
        assert "fp8" not in [result.name for result in plain.passes]
        asked = backend(device, L4, FP8_ASKED).prepare_model(model, level="aggressive")
        evidence = "0 of 2 linear layer(s) in FP8 -> 2 of 2 linear layer(s) in FP8"
        assert asked.result("fp8").evidence == evidence
        assert 0.01 < rms_error(asked.model(x), expected) < 0.08

    def test_cuda_graphs_of_the_config(self):
        config = Config().update(hardware={"nvidia": {"cuda_graphs": True}})
        one = {"hardware": L4, "devices": [torch.device("cuda", 0)]}
        assert NVIDIABackend(config, **one).setting().compile_mode == "reduce-overhead"
        assert NVIDIABackend(**one).setting().compile_mode == "default"


class TestFusedLayers:
    @pytest.mark.parametrize(
        ("activation", "kind", "bias"),
        [
            (nn.GELU(), FusedLinearGELU, True),
            (nn.GELU("tanh"), FusedLinearGELU, False),
            (nn.SiLU(), FusedLinearSiLU, True),
        ],
        ids=["gelu", "gelu-tanh", "silu"],
    )
    def test_numbers(self, activation, kind, bias, device):
        inner = nn.Sequential(nn.Linear(24, 40, bias=bias), activation)
        model = nn.ModuleDict({"inner": inner, "other": nn.Linear(24, 40)}).to(device)
        x = torch.randn(3, 5, 24, device=device)
        expected = in_float64(model["inner"], x)
        fused, result = fuse_linear_activation(model, Setting(device, AMPERE))
        assert (type(fused["inner"][0]), type(fused["other"])) == (kind, nn.Linear)
        assert result.evidence == "0 fused layer(s) -> 1 fused layer(s)"
        assert_close(fused["inner"](x), expected)

    def test_others_are_left(self, device):
        model, result = fuse_linear_activation(mlp(), Setting(device, AMPERE))
        assert [type(module) for module in model] == [nn.Linear, nn.ReLU, nn.Linear]
        assert result.reason.startswith("no nn.Linear with a GELU or SiLU behind it")

    def test_a_wrong_kernel_is_found(self, device):
        linear = nn.Linear(24, 40).to(device)
        fused = FusedLinearGELU(24, 40, approximate="tanh")
        fused.weight, fused.bias = linear.weight, linear.bias
        prove(fused, linear, nn.GELU("tanh"))
        with pytest.raises(errors.KernelLaunchError, match="is wrong by"):
            prove(fused, linear, nn.GELU())


class TestFP8:
    def test_unaligned_layers_keep_their_numbers(self, device):
        model = nn.Sequential(nn.Linear(48, 30), nn.Linear(30, 64)).to(device).eval()
        mixed = nn.Sequential(nn.Linear(48, 48), model[0]).to(device).eval()
        prepared = FP8Compiler(hardware=L4, device=device).prepare_for_fp8(mixed)
        x = torch.randn(4, 48, device=device)
        assert torch.equal(prepared[1](x), model[0](x))
        assert not torch.equal(prepared[0](x), mixed[0](x))

    @pytest.mark.usefixtures("in_float8")
    def test_cancelling_sums_are_refused(self, device):
        linear = nn.Linear(32, 16, bias=False).to(device)
        with torch.no_grad():  # x0 - x1 of large neighbours: equal in FP8
            linear.weight.zero_()
            linear.weight[:, 0], linear.weight[:, 1] = 1.0, -1.0
        x = torch.full((8, 32), 100.0, device=device)
        x[:, 0] += torch.rand(8, device=device)
        with pytest.raises(errors.FP8CompilationError, match=r"over 15%"):
            FP8Compiler(hardware=L4, device=device).compile_with_fp8(nn.Sequential(linear), (x,))


class TestEstimates:
    """Estimates for a device of 100 TFLOP/s (200 in FP8) and 1 TB/s."""

    DEVICE = dataclasses.replace(
        HOPPER, units=100, clock_hz=100e12 / 4096 / 100, memory_bytes_per_s=1e12
    )

    def estimate(self, *widths: int, tokens: int):
        layers = [nn.Linear(i, o, device="meta") for i, o in itertools.pairwise(widths)]
        compiler = FP8Compiler(hardware=self.DEVICE)
        return compiler.estimate_speedup(nn.Sequential(*layers), tokens=tokens)

    def test_by_hand(self):
        told = self.estimate(640, 1280, tokens=10_000)
        moved = 2 * (10_000 * 640 + 640 * 1280 + 10_000 * 1280) / 1e12
        halved = (10_000 * 640 + 640 * 1280 + 2 * 10_000 * 1280) / 1e12
        flops = 2 * 10_000 * 640 * 1280
        assert told.bf16_s == pytest.approx(max(moved, flops / 100e12))
        assert told.fp8_s == pytest.approx(max(halved, flops / 200e12) + 5 * 10_000 * 640 / 1e12)
        assert self.estimate(6400, 64, tokens=10_000).speedup < 1  # quantising costs more

    def test_bound_by_computing_it_nears_two(self):
        told = [self.estimate(n, n, tokens=n).speedup for n in (512, 2048, 8192, 32768)]
        assert told == sorted(told)
        assert 1.9 < told[-1] < 2

    def test_unaligned_layers_gain_nothing(self):
        told = self.estimate(1000, 1001, tokens=4096)
        assert (told.speedup, told.layers) == (1.0, {"0": 1.0})

    @pytest.mark.parametrize(
        ("hardware", "bf16"), [(L4, 121e12), (HOPPER, 989e12), (BLACKWELL, 2.25e15)]
    )
    def test_data_sheets(self, hardware, bf16):
        _, units, clock, bandwidth = DATA_SHEETS[hardware.target]
        facts = {"units": units, "clock_hz": clock, "memory_bytes_per_s": bandwidth}
        told = dataclasses.replace(hardware, **facts)
        assert peak_flops(told, "bf16") == pytest.approx(bf16, rel=0.002)
        assert peak_flops(told, "fp8") == 2 * peak_flops(told, "bf16")

    def test_unknown_peaks_are_not_made_up(self):
        model = nn.Linear(16, 16)
        with pytest.raises(ValueError, match="peaks of sm_120 are not known"):
            FP8Compiler(hardware=Hardware.nvidia((12, 0))).estimate_speedup(model)
        with pytest.raises(ValueError, match=r"no nn\.Linear"):
            FP8Compiler(hardware=HOPPER).estimate_speedup(nn.ReLU())
