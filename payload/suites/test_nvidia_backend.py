"""The named tests of the NVIDIA backend. Other hardware is replaced by injected properties."""

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
    encoder,
    in_float64,
    mlp,
    resnet,
)
from suites.numerics import assert_close, relative_error, rms_error
from suites.nvidia_fakes import MIB, FakeCuda, NoCuda, backend, explicit, optimizer
from torchbridge.attention import FlashAttention3, PathRefused, create_flash_attention_3
from torchbridge.backends import errors
from torchbridge.backends.nvidia import (
    CUDADeviceManager,
    CUDAOptimizations,
    CUDAUtilities,
    FP8Compiler,
    NVIDIABackend,
    NVIDIAMemoryManager,
    create_cuda_integration,
)
from torchbridge.config import Config
from torchbridge.fp8 import FP8InferenceLinear, NativeFP8Linear
from torchbridge.hardware import Hardware
from torchbridge.kernels import KernelRefused, Request
from torchbridge.memory import storage_bytes

PASCAL = Hardware.nvidia((6, 0))


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
        assert (made.compute_capability, made.hardware.target) == ((8, 9), "sm_89")

    def test_prepare_model_no_cuda(self):
        with pytest.warns(UserWarning, match="works on the CPU"):
            made = NVIDIABackend(devices=[])
        model = mlp()
        prepared = rules.keeps_the_numbers(made.prepare_model, model, torch.randn(4, 128))
        assert (prepared.model, prepared.level) == (model, "balanced")

    def test_h100_detection(self, device):
        found = {h.target: backend(device, h) for h in (TURING, A10G, L4, HOPPER, BLACKWELL)}
        assert [t for t, b in found.items() if b.is_h100] == ["sm_90"]
        assert [t for t, b in found.items() if b.is_blackwell] == ["sm_100"]
        named = Hardware.nvidia((8, 0), name="NVIDIA H100 80GB HBM3")  # the name is ignored
        assert not backend(device, named).is_h100

    def test_fp8_support_detection(self, device):
        hardware = (TURING, AMPERE, A10G, L4, HOPPER, BLACKWELL)
        supported = [h.target for h in hardware if backend(device, h).supports_fp8]
        assert supported == ["sm_89", "sm_90", "sm_100"]

    def test_get_device_info(self, device):
        info = backend(device, L4).get_device_info()
        assert (info["backend"], info["device"]) == ("nvidia", str(device))
        assert {"bf16", "fp8", "tensor_cores"} < set(info["features"])
        assert info["available"] == (torch.cuda.is_available() and not torch.version.hip)

    def test_get_memory_stats(self, device):
        rules.stats_are_the_devices(backend(device).get_memory_stats(), device)

    def test_optimize_for_tensor_cores(self, device):
        x = torch.randn(2, 3, 16, 16, device=device)
        for hardware, dtype, limit in ((AMPERE, "bfloat16", 3e-2), (TURING, "float16", 1e-2)):
            prepare = backend(device, hardware).optimize_for_tensor_cores
            model = resnet().to(device).eval()
            prepared = rules.keeps_the_numbers(prepare, model, x, (x,), limit=limit)
            assert prepared.applied == ("channels_last", dtype)
            assert prepared.model[0].weight.dtype == getattr(torch, dtype)

    def test_backend_with_custom_config(self, device):
        config = rules.settings("nvidia", fp8_enabled=True, memory_fraction=0.5)
        config = config.update(optimization_level="conservative")
        made = backend(device, HOPPER, config)
        assert made.prepare_model(mlp()).level == "conservative"
        assert (made.settings.architecture.value, made.settings.memory_fraction) == ("hopper", 0.5)
        last = [p.__name__ for p in made.passes("aggressive", False)][-2:]
        assert last == ["apply_pass", "compile_model"]
        wrong = rules.settings("nvidia", architecture="hopper")
        with pytest.raises(errors.InvalidArchitectureError, match="architecture is ampere"):
            backend(device, AMPERE, wrong)


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
        assert relative_error(result.optimized_model(x), expected) > 1e-5  # it computes in bfloat16

    def test_optimize_for_inference(self, device):
        x, optimize = torch.randn(2, 8, 32, device=device), optimizer(device).optimize_for_inference
        result = rules.keeps_the_numbers(optimize, encoder().to(device), x, limit=3e-2)
        assert result.optimization_level == "aggressive"
        assert {"sdpa", "bfloat16"} <= set(result.optimizations_applied)
        assert not result.optimized_model.training

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
        x, optimize = torch.randn(4, 128, device=device), optimizer(device).optimize
        given = mlp().to(device), x, "aggressive", (x,)
        compiled = rules.keeps_the_numbers(optimize, *given, limit=3e-2)
        assert compiled.compilation_time > 0
        assert "graph(s) by aot_eager" in compiled.passes[-1].evidence

    def test_mixed_precision_enablement(self, device):
        x = torch.randn(4, 128, device=device)
        chips = {AMPERE: torch.bfloat16, TURING: torch.float16, PASCAL: torch.float32}
        for hardware, dtype in chips.items():
            made = optimizer(device, hardware)
            made.backend.config = Config().update(kernels={"compile": False})
            given = mlp().to(device), x, "aggressive", (x,)
            result = rules.keeps_the_numbers(made.optimize, *given, limit=3e-2)
            assert {p.dtype for p in result.optimized_model.parameters()} == {dtype}
            assert result.optimized_model(x).dtype == torch.float32


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
        model = mlp().to(device)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for hardware, use in ((TURING, True), (AMPERE, False), (A10G, True)):
            compiler = FP8Compiler(hardware=hardware, device=device)
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
        assert compiler.estimate_speedup(mlp(), tokens=64).speedup < 1.4  # it depends on the sizes
        clocked = dataclasses.replace(L4, units=58, clock_hz=2.04e9, memory_bytes_per_s=3e11)
        own = FP8Compiler(hardware=clocked, device=device).estimate_speedup(wide, tokens=8192)
        assert own.source == "58 units at 2,040 MHz (sm_89)"

    def test_compile_with_fp8(self, device):
        model, x = mlp().to(device).eval(), torch.randn(32, 128, device=device)
        compiler = FP8Compiler(hardware=HOPPER, device=device)
        prepared = compiler.compile_with_fp8(model, (x,), backend="aot_eager")
        assert prepared.applied == ("fp8", "compile")
        assert rms_error(prepared.model(x), in_float64(model, x)) < 0.08


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
        lay_out = NVIDIAMemoryManager(device=device).optimize_tensor_layout
        image = torch.randn(2, 3, 5, 7, device=device)
        odd = torch.randn(127, 127, device=device).t()  # never padded to another shape
        for tensor, layout in ((image, torch.channels_last), (odd, torch.contiguous_format)):
            assert lay_out(tensor).is_contiguous(memory_format=layout)
            assert torch.equal(lay_out(tensor), tensor)

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


class TestFlashAttention3:
    def test_flash_attention_creation(self):
        layer = FlashAttention3(64, 4, dropout=0.1, causal=True)
        assert (layer.embed_dim, layer.num_heads, layer.head_dim) == (64, 4, 16)
        assert (layer.dropout, layer.causal, layer.path_taken) == (0.1, True, None)
        assert sum(p.numel() for p in layer.parameters()) == 4 * 64 * 65
        assert sum(p.numel() for p in FlashAttention3(64, 4, bias=False).parameters()) == 4 * 64**2

    def test_flash_attention_forward(self, device):
        layer, x = FlashAttention3(64, 4).to(device), torch.randn(2, 10, 64, device=device)
        assert_close(layer(x), explicit(layer, x)[0])

    def test_flash_attention_with_mask(self, device):
        layer, x = FlashAttention3(64, 4).to(device), torch.randn(2, 10, 64, device=device)
        mask = torch.rand(2, 1, 10, 10, device=device) < 0.6
        mask[..., 0] = True
        masked = layer(x, mask)
        assert_close(masked, explicit(layer, x, mask)[0])
        assert relative_error(masked, layer(x)) > 0.05

    def test_flash_attention_return_weights(self, device):
        layer = FlashAttention3(64, 4, causal=True).to(device)
        x = torch.randn(2, 10, 64, device=device)
        output, weights = layer(x, return_weights=True)
        expected, expected_weights = explicit(layer, x)
        assert_close(output, expected)
        assert_close(weights, expected_weights)
        assert weights.triu(1).abs().max() == 0

    def test_create_flash_attention_3(self):
        layer = create_flash_attention_3(64, 4, causal=True)
        assert (type(layer), layer.causal) == (FlashAttention3, True)

    def test_flash_attention_dropout(self, device):
        layer = FlashAttention3(64, 4, dropout=0.3).to(device)
        x = torch.randn(1, 10, 64, device=device).expand(2000, -1, -1)
        expected = layer.eval()(x[:1]).detach()  # no dropout in eval mode
        dropped = layer.train()(x).detach()
        assert relative_error(dropped[:1], expected) > 0.05
        assert_close(dropped.mean(dim=0, keepdim=True), expected, 0.05)  # others are scaled up

    def test_flash_attention_invalid_dimensions(self):
        with pytest.raises(ValueError, match="64"):
            FlashAttention3(64, 4)(torch.randn(2, 10, 32))

    def test_flash_attention_standard_fallback(self, device):
        layer, x = FlashAttention3(64, 4, causal=True), torch.randn(2, 10, 64, device=device)
        layer = layer.to(device)
        expected = explicit(layer, x)[0]
        assert_close(layer(x), expected)
        assert layer.path_taken.startswith("sdpa[is_causal")
        layer.path = "explicit"
        assert_close(layer(x), expected)
        assert layer.path_taken == "explicit[scores]"
        layer.path = "sdpa_cudnn"  # cuDNN does not support float32
        with pytest.raises(PathRefused, match="sdpa_cudnn"):
            layer(x)


class TestCUDAUtilities:
    def test_cuda_device_manager_no_cuda(self):
        manager = CUDADeviceManager(NoCuda())
        assert (manager.device_count, manager.device) == (0, torch.device("cpu"))
        manager.synchronize()
        for ask in (manager.set_device, manager.get_device_properties):
            with pytest.raises(errors.CUDANotAvailableError, match="no CUDA device"):
                ask(0)

    def test_cuda_device_manager_with_cuda(self):
        manager = CUDADeviceManager(FakeCuda())
        assert (manager.device_count, manager.device) == (2, torch.device("cuda", 0))
        manager.set_device(1)
        assert manager.device == torch.device("cuda", 1)
        with pytest.raises(errors.CUDADeviceError, match="device 2: there are 2, from 0"):
            manager.set_device(2)

    def test_cuda_optimizations(self, device):
        model, x = resnet().to(device).eval(), torch.randn(2, 3, 16, 16, device=device)
        config = Config().update(precision={"allow_tf32": True})
        made = CUDAOptimizations(config, device=device, hardware=L4)
        prepared = rules.keeps_the_numbers(made.optimize_model, model, x)
        assert prepared.applied == ("channels_last",)
        cudnn = torch.backends.cudnn

        def switches() -> tuple:
            return torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark

        before = switches()
        with made.flags() as told:
            assert told == {"tf32": True, "cudnn_benchmark": True}
            assert switches() == ("high", True, True)
        assert switches() == before
        assert not CUDAOptimizations(device=device, hardware=L4).wanted_flags()["tf32"]

    def test_get_cuda_env_info(self):
        info = CUDAUtilities(FakeCuda()).get_cuda_env_info()
        assert (info["torch"], info["cuda"]) == (torch.__version__, torch.version.cuda)
        assert (info["available"], info["device_count"]) == (True, 2)
        assert info["compiled_for"] == ["sm_80", "sm_90"]
        none = CUDAUtilities(NoCuda()).get_cuda_env_info()
        assert (none["available"], none["devices"]) == (False, [])

    def test_create_cuda_integration(self):
        manager, optimizations = create_cuda_integration(cuda=NoCuda())
        assert (manager.device_count, optimizations.device) == (0, torch.device("cpu"))
        assert optimizations.hardware.vendor == "cpu"

    def test_cuda_device_properties(self):
        told = CUDADeviceManager(FakeCuda()).get_device_properties(1)
        assert (told["name"], told["compute_capability"]) == ("NVIDIA L4", (8, 9))
        assert (told["total_memory"], told["multi_processor_count"]) == (23 * 2**30, 58)
        assert told["warp_size"] == 32
        assert told["max_threads_per_block"] is None  # unknown, so None


class TestNVIDIAIntegration:
    def test_full_optimization_pipeline(self, device):
        optimize = optimizer(device).optimize_for_inference
        x = torch.randn(2, 3, 16, 16, device=device)
        result = rules.keeps_the_numbers(optimize, resnet().to(device), x, (x,), limit=3e-2)
        assert {"fold_conv_bn", "bfloat16", "compile"} <= set(result.optimizations_applied)
        assert result.device_info["device"] == str(device)
        assert result.memory_stats["allocated_bytes"] > 0

    def test_backend_with_memory_manager(self, device):
        made, manager = backend(device), NVIDIAMemoryManager(device=device)
        model = made.prepare_model(mlp().to(device)).model
        x = manager.allocate_tensor((16, 128), pool_id="inputs").normal_()
        assert_close(model(x), in_float64(model, x))
        manager.return_to_pool(x, "inputs")
        assert manager.get_pool_stats("inputs")["bytes"] == 16 * 128 * 4
        made.cleanup()
        assert manager.clear_pool() == 16 * 128 * 4

    def test_end_to_end_inference_optimization(self, device):
        model = nn.Sequential(mlp(), nn.GELU(), mlp()).to(device).eval()
        x = torch.randn(64, 128, device=device)
        expected = in_float64(model, x)
        made = backend(device, HOPPER)
        prepared = made.prepare_model(model, level="balanced")
        fp8 = FP8Compiler(hardware=HOPPER, device=device).prepare_for_fp8(prepared.model)
        assert 0.005 < rms_error(fp8(x), expected) < 0.12
        held = NVIDIAMemoryManager(device=device).optimize_model_memory(fp8)["after_bytes"]
        assert held < 0.3 * 4 * 2 * (2 * 128 * 256 + 384)  # a quarter of float32, and the biases
        assert held < MIB


class TestNVIDIAErrorPaths:
    def test_memory_allocation_error_handling(self, device):
        manager = NVIDIAMemoryManager(device=device)
        with pytest.raises(errors.MemoryAllocationError, match=r"no tensor of shape \(2, -1\)"):
            manager.allocate_tensor((2, -1))
        rules.what_does_not_fit_is_refused(manager, errors.OutOfMemoryError)

    def test_cuda_not_available_graceful_fallback(self):
        with pytest.warns(UserWarning, match="NVIDIABackend works on the CPU"):
            made = NVIDIABackend(devices=[])
        with pytest.raises(errors.CUDANotAvailableError, match=r"nvidia: torch .* (is not|sees)"):
            made.require_device()
        assert made.to_device(torch.ones(2)).device.type == "cpu"

    def test_memory_check_when_cuda_unavailable(self):
        manager = NVIDIAMemoryManager(device="cpu")
        assert not manager.check_memory_available(0.001)
        with pytest.raises(errors.OutOfMemoryError, match="there is no CUDA device"):
            manager.allocate_with_oom_protection((2, 2))

    def test_oom_protection_with_insufficient_memory(self, device):
        manager = NVIDIAMemoryManager(device=device, free_bytes=lambda: 24 * 2**30)
        with pytest.raises(errors.OutOfMemoryError, match="Insufficient GPU memory") as caught:
            manager.allocate_with_oom_protection((1024,) * 4)
        assert "5,033,164.8 MiB" in str(caught.value)  # with a margin of 1.2
        assert isinstance(caught.value, errors.MemoryAllocationError)

    def test_invalid_model_input(self, device):
        made = backend(device)
        with pytest.warns(UserWarning, match="the model is None"):
            assert made.prepare_model(None) is None
        with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
            made.prepare_model("model")
        with pytest.raises(TypeError, match="got None"):
            optimizer(device).optimize(None)

    def test_flash_attention_causal_parameter(self, device):
        x = torch.randn(2, 10, 64, device=device)
        changed = x.clone()
        changed[:, -1] += 1
        for causal in (True, False):
            layer = FlashAttention3(64, 4, causal=causal).to(device)
            past = relative_error(layer(changed)[:, :-1], layer(x)[:, :-1])
            assert (past < 1e-6) == causal

    def test_fp8_compiler_metadata_only_warning(self, device, recwarn):
        compiler = FP8Compiler(hardware=HOPPER, device=device)
        odd = nn.Sequential(nn.Linear(127, 63), nn.ReLU()).to(device)
        with pytest.warns(UserWarning, match="no nn.Linear whose widths are multiples of 16"):
            assert compiler.prepare_for_fp8(odd) is odd
        recwarn.clear()
        converted = compiler.prepare_for_fp8(mlp().to(device))
        assert len(recwarn) == 0
        assert converted[0].weight.untyped_storage().nbytes() == 128 * 256  # one byte per weight

    def test_memory_allocation_with_cleanup(self, device):
        asked = []

        def free_bytes() -> int:
            asked.append(10 * MIB - sum(pool.bytes for pool in manager.pools.values()))
            return asked[-1]

        manager = NVIDIAMemoryManager(device=device, free_bytes=free_bytes)
        manager.return_to_pool(manager.allocate_tensor((8 * MIB // 4,)), "a")
        asked.clear()
        tensor = manager.allocate_with_oom_protection((5 * MIB // 4,), safety_margin=1.0)
        assert (tensor.nbytes, asked[:2]) == (5 * MIB, [2 * MIB, 10 * MIB])
        asked.clear()
        with pytest.raises(errors.OutOfMemoryError):
            manager.allocate_with_oom_protection((11 * MIB // 4,), safety_margin=1.0)
        assert asked == [10 * MIB] * 2  # one clean-up, not more

    def test_optimizer_with_invalid_optimization_level(self, device):
        rules.unknown_levels_are_balanced(optimizer(device))

    def test_memory_stats_tensor_size_estimation(self, device):
        manager = NVIDIAMemoryManager(device=device)
        sizes = {torch.float64: 8.0, torch.float32: 4.0, torch.bfloat16: 2.0, torch.int8: 1.0}
        for dtype, mib in sizes.items():
            assert manager.estimate_tensor_mb((1024, 1024), dtype) == mib
            assert manager.allocate_tensor((1024, 1024), dtype).nbytes == mib * MIB
        assert manager.estimate_tensor_mb((), torch.float32) == 4 / MIB

    def test_unsupported_compute_capability(self, device):
        with pytest.raises(errors.InvalidComputeCapabilityError, match="sm_52 is not supported"):
            backend(device, Hardware.nvidia((5, 2)))
        assert backend(device, PASCAL).compute_capability == (6, 0)

    def test_flash_attention_invalid_embed_dim(self):
        with pytest.raises(ValueError, match="66 is not divisible by num_heads 8"):
            FlashAttention3(66, 8)

    def test_memory_pool_operations(self, device):
        manager = NVIDIAMemoryManager(device=device, pool_limit_bytes=100)
        manager.return_to_pool(manager.allocate_tensor((26,)), "a")  # larger than the pool
        assert manager.get_pool_stats("a")["evictions"] == 1
        assert manager.clear_pool("a") == 0

    def test_fp8_unsupported_architecture(self, device):
        asked = rules.settings("nvidia", fp8_enabled=True)
        for hardware in (TURING, AMPERE, A10G):
            with pytest.raises(errors.ConfigurationError, match=hardware.target):
                NVIDIABackend(asked, hardware=hardware, device=device)
            made = FP8Compiler(hardware=hardware, device=device)
            with pytest.raises(ValueError, match="no FP8 units"):
                made.estimate_speedup(mlp())
            model = mlp()
            told = made.compile_with_fp8(model, (torch.randn(2, 128),))
            assert told.model is model
            assert hardware.target in told.warnings[0]

    def test_backend_kernel_registry_integration(self, device):
        made = backend(device, HOPPER)
        request = Request(made.hardware, torch.float32)
        assert made.kernel_registry.lookup("linear_gelu", request).kernel.name == "composed"
        with pytest.raises(KernelRefused, match="no operation 'linear_swish'"):
            made.kernel_registry.lookup("linear_swish", request)
        model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 16), nn.SiLU())
        model, x = model.to(device), torch.randn(5, 32, device=device)
        prepared = rules.keeps_the_numbers(made.prepare_model_with_custom_kernels, model, x)
        assert prepared.passes[0].evidence == "0 fused layer(s) -> 2 fused layer(s)"
        kernels = {kernel.name for kernel in made.kernel_registry.kernels("linear_gelu")}
        assert model[0].path_taken in kernels

    def test_memory_allocation_safety_margin(self, device):
        shape, free = (MIB,), [6 * MIB]  # 4 MiB of float32
        manager = NVIDIAMemoryManager(device=device, free_bytes=lambda: free[0])
        assert manager.allocate_with_oom_protection(shape, safety_margin=1.5).nbytes == 4 * MIB
        free[0] -= 1
        with pytest.raises(errors.OutOfMemoryError):
            manager.allocate_with_oom_protection(shape, safety_margin=1.5)
        assert manager.allocate_with_oom_protection(shape).nbytes == 4 * MIB  # 1.2 by the config

    def test_optimization_warnings(self, device):
        result = optimizer(device, PASCAL).optimize(mlp().to(device).eval(), "aggressive")
        reasons = dict(one.split(": ", 1) for one in result.warnings)
        assert reasons["bfloat16"] == "nvidia sm_60 has no native bf16"
        assert reasons["compile"] == "no sample inputs to compile with"
        assert reasons["channels_last"] == "no 2-D convolution"
        assert result.optimizations_applied == ()
