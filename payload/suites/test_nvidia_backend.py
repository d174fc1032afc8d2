"""The named tests of the NVIDIA backend. What needs other hardware is tried with a given one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from suites import vendor_rules as rules
from suites.backend_models import (
    A10G,
    AMPERE,
    BLACKWELL,
    HOPPER,
    L4,
    TURING,
    VOLTA,
    encoder,
    in_float64,
    mlp,
    resnet,
)
from suites.numerics import assert_close, relative_error, rms_error
from suites.nvidia_error_paths import TestNVIDIAErrorPaths
from suites.nvidia_fakes import MIB, backend, optimizer
from suites.nvidia_parts import TestCUDAUtilities, TestFlashAttention3, TestNVIDIAIntegration
from torchbridge.backends import errors
from torchbridge.backends.nvidia import FP8Compiler, NVIDIABackend, NVIDIAMemoryManager
from torchbridge.config import Config
from torchbridge.fp8 import FP8InferenceLinear, NativeFP8Linear
from torchbridge.hardware import Hardware
from torchbridge.memory import storage_bytes

__all__ = [  # collected here, written there
    "TestCUDAUtilities",
    "TestFlashAttention3",
    "TestNVIDIAErrorPaths",
    "TestNVIDIAIntegration",
]


class TestNVIDIABackend:
    def test_backend_creation_no_cuda(self):
        with pytest.warns(UserWarning, match="no nvidia device here"):
            made = NVIDIABackend(devices=[])
        assert (made.device, made.devices) == (torch.device("cpu"), [])
        assert (made.is_available, made.supports_fp8) == (False, False)
        assert (made.compute_capability, made.settings.enabled) == (None, False)

    def test_backend_creation_with_cuda(self):
        two = [torch.device("cuda", 0), torch.device("cuda", 1)]
        made = NVIDIABackend(hardware=L4, devices=two)
        assert (made.device, len(made.devices)) == (torch.device("cuda", 0), 2)
        assert made.is_available
        assert (made.compute_capability, made.hardware.target) == ((8, 9), "sm_89")
        with pytest.raises(ValueError, match=r"cuda:5 is none of \['cuda:0', 'cuda:1'\]"):
            made.set_device("cuda:5")

    def test_prepare_model_no_cuda(self):
        with pytest.warns(UserWarning, match="works on the CPU"):
            made = NVIDIABackend(devices=[])
        model, x = mlp(), torch.randn(4, 128)
        expected = in_float64(model, x)
        prepared = made.prepare_model(model)
        assert (prepared.model, prepared.level) == (model, "balanced")
        assert prepared.result("to_device").reason == "already on cpu"
        assert_close(prepared.model(x), expected)

    def test_h100_detection(self, device):
        found = {h.target: backend(device, h) for h in (TURING, A10G, L4, HOPPER, BLACKWELL)}
        assert [t for t, b in found.items() if b.is_h100] == ["sm_90"]
        assert [t for t, b in found.items() if b.is_blackwell] == ["sm_100"]
        named = Hardware.nvidia((8, 0), name="NVIDIA H100 80GB HBM3")  # a name says nothing
        assert not backend(device, named).is_h100

    def test_fp8_support_detection(self, device):
        hardware = (VOLTA, TURING, AMPERE, A10G, L4, HOPPER, BLACKWELL)
        supported = [h.target for h in hardware if backend(device, h).supports_fp8]
        assert supported == ["sm_89", "sm_90", "sm_100"]
        assert L4.architecture == "ada"

    def test_get_device_info(self, device):
        info = backend(device, L4).get_device_info()
        assert (info["backend"], info["device"]) == ("nvidia", str(device))
        assert (info["architecture"], info["capability"]) == ("ada", (8, 9))
        assert {"bf16", "fp8", "tensor_cores"} < set(info["features"])
        assert info["available"] == (torch.cuda.is_available() and not torch.version.hip)

    def test_get_memory_stats(self, device):
        made = backend(device)
        rules.stats_are_the_devices(made.get_memory_stats(), device)

    def test_optimize_for_tensor_cores(self, device):
        x = torch.randn(2, 3, 16, 16, device=device)
        for hardware, dtype, limit in ((AMPERE, "bfloat16", 3e-2), (TURING, "float16", 1e-2)):
            model = resnet().to(device).eval()
            expected = in_float64(model, x)
            prepared = backend(device, hardware).optimize_for_tensor_cores(model, (x,))
            assert prepared.applied == ("channels_last", dtype)
            assert prepared.model[0].weight.dtype == getattr(torch, dtype)
            assert prepared.model(x).dtype == torch.float32
            assert_close(prepared.model(x), expected, limit)
        old = backend(device, Hardware.nvidia((6, 0))).optimize_for_tensor_cores(resnet())
        assert old.result("bfloat16").reason == "nvidia sm_60 has no native bf16"

    def test_backend_with_custom_config(self, device):
        config = Config(optimization_level="conservative").update(
            hardware={"nvidia": {"fp8_enabled": True, "memory_fraction": 0.5}}
        )
        made = backend(device, HOPPER, config)
        assert made.prepare_model(mlp()).level == "conservative"
        assert (made.settings.architecture.value, made.settings.memory_fraction) == ("hopper", 0.5)
        last = [p.__name__ for p in made.passes("aggressive", False)][-2:]
        assert last == ["apply_pass", "compile_model"]
        wrong = Config().update(hardware={"nvidia": {"architecture": "hopper"}})
        with pytest.raises(errors.InvalidArchitectureError, match="architecture is ampere"):
            backend(device, AMPERE, wrong)
        with pytest.raises(errors.ConfigurationError, match="fp8_enabled"):
            backend(device, AMPERE, config)


class TestNVIDIAOptimizer:
    def test_optimizer_creation(self, device):
        made = optimizer(device, L4)
        assert isinstance(made.backend, NVIDIABackend)
        assert (made.backend.hardware, made.backend.device) == (L4, device)

    def test_conservative_optimization(self, device):
        rules.lowest_is_bit_for_bit(optimizer(device), "conservative")

    def test_balanced_optimization(self, device):
        rules.norms_are_folded(optimizer(device), "balanced")

    def test_aggressive_optimization(self, device):
        model, x = resnet().to(device), torch.randn(2, 3, 16, 16, device=device)
        expected = in_float64(model, x)
        result = optimizer(device).optimize(model, "aggressive", (x,))
        wanted = ("fold_conv_bn", "channels_last", "bfloat16", "compile")
        assert result.optimizations_applied[1:] == wanted
        assert_close(result.optimized_model(x), expected, 3e-2)
        assert relative_error(result.optimized_model(x), expected) > 1e-5  # it is bfloat16

    def test_optimize_for_inference(self, device):
        model, x = encoder().to(device), torch.randn(2, 8, 32, device=device)
        expected = in_float64(model, x)
        result = optimizer(device).optimize_for_inference(model)
        assert result.optimization_level == "aggressive"
        assert {"sdpa", "bfloat16"} <= set(result.optimizations_applied)
        assert not result.optimized_model.training
        assert_close(result.optimized_model(x), expected, 3e-2)

    def test_optimize_for_training(self, device):
        rules.training_keeps_precision(optimizer(device))

    def test_get_optimization_recommendations(self, device):
        told = {h.target: optimizer(device, h) for h in (TURING, AMPERE, L4)}
        advice = {t: made.get_optimization_recommendations(mlp()) for t, made in told.items()}
        assert "aggressive: float16 on tensor cores" in advice["sm_75"]
        assert "aggressive: bfloat16 on tensor cores" in advice["sm_80"]
        assert [t for t, lines in advice.items() if any("FP8" in line for line in lines)] == [
            "sm_89"
        ]
        assert not any("convolution" in line for line in advice["sm_80"])
        images = told["sm_80"].get_optimization_recommendations(resnet())
        assert "balanced: fold batch norms into convolutions" in images

    def test_optimization_with_sample_inputs(self, device):
        x = torch.randn(4, 128, device=device)
        without = optimizer(device).optimize(mlp().to(device), "aggressive")
        assert "compile: no sample inputs to compile with" in without.warnings
        assert without.compilation_time == 0
        model = mlp().to(device)
        expected = in_float64(model, x)
        compiled = optimizer(device).optimize(model, "aggressive", (x,))
        assert compiled.compilation_time > 0
        assert "graph(s) by aot_eager" in compiled.passes[-1].evidence
        assert_close(compiled.optimized_model(x), expected, 3e-2)

    def test_mixed_precision_enablement(self, device):
        x = torch.randn(4, 128, device=device)
        for hardware, dtype in ((AMPERE, torch.bfloat16), (TURING, torch.float16)):
            made = optimizer(device, hardware)
            made.backend.config = Config().update(kernels={"compile": False})
            model = mlp().to(device)
            expected = in_float64(model, x)
            result = made.optimize(model, "aggressive", (x,))
            assert {p.dtype for p in result.optimized_model.parameters()} == {dtype}
            assert result.optimized_model(x).dtype == torch.float32
            assert_close(result.optimized_model(x), expected, 3e-2)
        pascal = optimizer(device, Hardware.nvidia((6, 0))).optimize(mlp(), "aggressive")
        assert {p.dtype for p in pascal.optimized_model.parameters()} == {torch.float32}


class TestFP8Compiler:
    def test_fp8_compiler_creation(self, device):
        made = FP8Compiler(hardware=HOPPER, device=device)
        assert (made.hardware, made.device, made.supported) == (HOPPER, device, True)
        off = Config().update(hardware={"nvidia": {"fp8_enabled": False}})
        assert not FP8Compiler(off, hardware=HOPPER, device=device).supported

    def test_fp8_support_hopper(self, device):
        for hardware in (L4, HOPPER, BLACKWELL):
            assert FP8Compiler(hardware=hardware, device=device).supported

    def test_fp8_support_ampere(self, device):
        for hardware in (TURING, AMPERE, A10G):
            model = mlp().to(device)
            before = {name: value.clone() for name, value in model.state_dict().items()}
            compiler = FP8Compiler(hardware=hardware, device=device)
            for use in (True, False):
                with pytest.warns(UserWarning, match=f"{hardware.target} has no FP8 units"):
                    assert compiler.prepare_for_fp8(model, for_inference=use) is model
            assert all(torch.equal(value, before[n]) for n, value in model.state_dict().items())

    def test_prepare_for_fp8_inference(self, device):
        model, x = mlp().to(device).eval(), torch.randn(32, 128, device=device)
        prepared = FP8Compiler(hardware=L4, device=device).prepare_for_fp8(model)
        assert [type(prepared[i]) for i in (0, 2)] == [FP8InferenceLinear] * 2
        assert prepared[0].weight.dtype.itemsize == 1
        assert 0.005 < rms_error(prepared(x), in_float64(model, x)) < 0.08
        assert type(model[0]) is nn.Linear  # the original stays

    def test_prepare_for_fp8_training(self, device):
        model, x = mlp().to(device), torch.randn(32, 128, device=device)
        weight = model[0].weight
        before = weight.detach().clone()
        prepared = FP8Compiler(hardware=HOPPER, device=device).prepare_for_fp8(
            model, for_inference=False
        )
        assert prepared is model
        assert isinstance(model[0], NativeFP8Linear)
        assert model[0].weight is weight  # the optimiser's very parameter
        optimizer_ = torch.optim.SGD(model.parameters(), lr=0.5)
        model(x).square().mean().backward()
        optimizer_.step()
        assert (weight - before).abs().max() > 1e-4

    def test_fp8_stats(self, device):
        compiler = FP8Compiler(hardware=HOPPER, device=device)
        model = nn.Sequential(mlp(), nn.Linear(128, 10)).to(device).eval()
        before = compiler.get_fp8_stats(model)
        assert (before["fp8_layers"], before["eligible_layers"], before["coverage"]) == (0, 2, 0)
        assert before["storage_bytes"] == 4 * (2 * 128 * 256 + 384 + 1290)
        after = compiler.get_fp8_stats(compiler.prepare_for_fp8(model))
        assert (after["fp8_layers"], after["other_linear_layers"]) == (2, 1)
        assert after["coverage"] == 65536 / (65536 + 1280)
        weights = 65536 + 4 * (384 + 1290)
        assert weights < after["storage_bytes"] <= weights + 64  # and the scales

    def test_estimate_speedup_hopper(self, device):
        compiler = FP8Compiler(hardware=HOPPER, device=device)
        wide = nn.Sequential(nn.Linear(8192, 8192, bias=False), nn.Linear(8192, 10))
        told = compiler.estimate_speedup(wide, tokens=8192)
        product, numbers = 2 * 8192**3, 8192**2
        bf16 = product / 989e12  # of the first layer, bound by computing
        fp8 = product / 1979e12 + 5 * numbers / 3.35e12  # its input is read twice and written once
        narrow = 2 * (8192**2 + 8192 * 10 + 8192 * 10) / 3.35e12  # bound by its input
        assert told.layers == {"0": pytest.approx(bf16 / fp8, rel=1e-3), "1": 1.0}
        assert told.speedup == pytest.approx((bf16 + narrow) / (fp8 + narrow), rel=1e-3)
        assert told.source == "NVIDIA H100 SXM's data sheet"
        assert compiler.estimate_speedup(mlp(), tokens=64).speedup < 1.4  # no constant
        clocked = dataclasses.replace(L4, units=58, clock_hz=2.04e9, memory_bytes_per_s=3e11)
        own = FP8Compiler(hardware=clocked, device=device).estimate_speedup(wide, tokens=8192)
        assert own.source == "58 units at 2,040 MHz (sm_89)"
        rate = 58 * 2.04e9
        wanted = product / (2048 * rate) + 5 * numbers / 3e11
        assert own.layers["0"] == pytest.approx(product / (1024 * rate) / wanted)
        with pytest.raises(ValueError, match="no FP8 units on sm_80"):
            FP8Compiler(hardware=AMPERE, device=device).estimate_speedup(wide)

    def test_compile_with_fp8(self, device):
        model, x = mlp().to(device).eval(), torch.randn(32, 128, device=device)
        compiler = FP8Compiler(hardware=HOPPER, device=device)
        prepared = compiler.compile_with_fp8(model, (x,), backend="aot_eager")
        assert prepared.applied == ("fp8", "compile")
        assert rms_error(prepared.model(x), in_float64(model, x)) < 0.08
        old = FP8Compiler(hardware=AMPERE, device=device).compile_with_fp8(model, (x,))
        assert (old.model, old.applied) == (model, ())


class TestNVIDIAMemoryManager:
    def test_memory_manager_creation(self, device):
        made = NVIDIAMemoryManager(device=device, pool_limit_bytes=5 * MIB)
        assert (made.device, made.pools) == (device, {})
        assert made.get_pool_stats("a")["limit_bytes"] == 5 * MIB

    def test_allocate_tensor(self, device):
        tensor = NVIDIAMemoryManager(device=device).allocate_tensor((128, 64), torch.bfloat16)
        assert (tensor.shape, tensor.dtype) == ((128, 64), torch.bfloat16)
        assert (tensor.device, tensor.nbytes) == (device, 128 * 64 * 2)

    def test_allocate_with_pool(self, device):
        rules.pools_are_bounded(NVIDIAMemoryManager(device=device, pool_limit_bytes=1200))

    def test_optimize_tensor_layout(self, device):
        made = NVIDIAMemoryManager(device=device)
        image = torch.randn(2, 3, 5, 7, device=device)
        moved = made.optimize_tensor_layout(image)
        assert moved.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(moved, image)
        odd = torch.randn(127, 127, device=device).t()  # never padded to another shape
        assert made.optimize_tensor_layout(odd).shape == (127, 127)
        assert made.optimize_tensor_layout(odd).is_contiguous()
        assert torch.equal(made.optimize_tensor_layout(odd), odd)

    def test_get_memory_stats(self, device):
        made = NVIDIAMemoryManager(device=device)
        made.return_to_pool(made.allocate_tensor((MIB,)), "a")
        stats = made.get_memory_stats()
        assert stats["pools"]["a"]["bytes"] == 4 * MIB
        assert stats["reserved_bytes"] >= stats["allocated_bytes"] >= 4 * MIB

    def test_optimize_model_memory(self, device):
        model = mlp().to(device)
        model(torch.randn(4, 128, device=device)).sum().backward()
        told = NVIDIAMemoryManager(device=device).optimize_model_memory(model)
        size = storage_bytes(list(model.parameters()))
        assert (told["before_bytes"], told["after_bytes"]) == (2 * size, size)
        assert (told["freed_bytes"], size) == (size, 4 * (2 * 128 * 256 + 384))
        assert all(p.grad is None for p in model.parameters())

    def test_clear_pool(self, device):
        made = NVIDIAMemoryManager(device=device)
        for name, size in (("a", 10), ("a", 20), ("b", 40)):
            made.return_to_pool(made.allocate_tensor((size,)), name)
        assert made.clear_pool("a") == 4 * 30
        assert made.get_pool_stats("a")["tensor_count"] == 0
        assert made.get_pool_stats("b")["tensor_count"] == 1
        assert made.clear_pool() == 4 * 40
