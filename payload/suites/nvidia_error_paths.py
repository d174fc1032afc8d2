"""Named tests of what goes wrong with an NVIDIA device. Collected by test_nvidia_backend.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites import vendor_rules as rules
from suites.backend_models import A10G, AMPERE, HOPPER, TURING, in_float64, mlp, resnet
from suites.numerics import assert_close, relative_error
from suites.nvidia_fakes import MIB, backend, optimizer
from torchbridge.attention import FlashAttention3
from torchbridge.backends import errors
from torchbridge.backends.nvidia import (
    FP8Compiler,
    NVIDIABackend,
    NVIDIAMemoryManager,
)
from torchbridge.config import Config
from torchbridge.hardware import Hardware
from torchbridge.kernels import FusedLinearGELU, KernelRefused, Request


class TestNVIDIAErrorPaths:
    def test_memory_allocation_error_handling(self, device):
        manager = NVIDIAMemoryManager(device=device)
        with pytest.raises(errors.MemoryAllocationError, match=r"no tensor of shape \(2, -1\)"):
            manager.allocate_tensor((2, -1))
        rules.what_does_not_fit_is_refused(manager, errors.OutOfMemoryError)

    def test_cuda_not_available_graceful_fallback(self):
        with pytest.warns(UserWarning, match="NVIDIABackend works on the CPU"):
            made = NVIDIABackend(devices=[])
        model, x = resnet(), torch.randn(2, 3, 16, 16)
        expected = in_float64(model, x)
        assert_close(made.prepare_model(model).model(made.to_device(x)), expected)

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
        assert converted[0].weight.untyped_storage().nbytes() == 128 * 256  # not metadata only

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
        sizes = {torch.float32: 4.0, torch.float16: 2.0, torch.bfloat16: 2.0, torch.int8: 1.0}
        for dtype, mib in {**sizes, torch.float64: 8.0, torch.float8_e4m3fn: 1.0}.items():
            assert manager.estimate_tensor_mb((1024, 1024), dtype) == mib
            assert manager.allocate_tensor((1024, 1024), dtype).nbytes == mib * MIB
        assert manager.estimate_tensor_mb((), torch.float32) == 4 / MIB

    def test_unsupported_compute_capability(self, device):
        for capability, target in (((3, 5), "sm_35"), ((5, 2), "sm_52")):
            with pytest.raises(
                errors.InvalidComputeCapabilityError, match=f"{target} is not supported"
            ):
                NVIDIABackend(hardware=Hardware.nvidia(capability), device=device)
        oldest = NVIDIABackend(hardware=Hardware.nvidia((6, 0)), device=device)
        assert oldest.compute_capability == (6, 0)
        with pytest.raises(ValueError, match="NVIDIABackend cannot use hardware of amd"):
            NVIDIABackend(hardware=Hardware.amd("gfx942"), device=device)

    def test_flash_attention_invalid_embed_dim(self):
        with pytest.raises(ValueError, match="66 is not divisible by num_heads 8"):
            FlashAttention3(66, 8)

    def test_memory_pool_operations(self, device):
        manager = NVIDIAMemoryManager(device=device, pool_limit_bytes=100)
        manager.return_to_pool(manager.allocate_tensor((26,)), "a")  # larger than the pool
        assert manager.get_pool_stats("a")["evictions"] == 1
        assert manager.clear_pool("a") == 0

    def test_fp8_unsupported_architecture(self, device):
        asked = Config().update(hardware={"nvidia": {"fp8_enabled": True}})
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
        assert made.kernel_registry.lookup("linear_silu", request).kernel.name == "composed"
        with pytest.raises(KernelRefused, match="no operation 'linear_swish'"):
            made.kernel_registry.lookup("linear_swish", request)
        model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 16), nn.SiLU())
        model, x = model.to(device), torch.randn(5, 32, device=device)
        expected, weight = in_float64(model, x), model[0].weight
        prepared = made.prepare_model_with_custom_kernels(model)
        assert prepared.passes[0].evidence == "0 fused layer(s) -> 2 fused layer(s)"
        assert isinstance(model[0], FusedLinearGELU)
        assert model[0].weight is weight
        assert_close(prepared.model(x), expected)
        kernels = {kernel.name for kernel in made.kernel_registry.kernels("linear_gelu")}
        assert model[0].path_taken in kernels

    def test_memory_allocation_safety_margin(self, device):
        shape = (25 * MIB,)  # 100 MiB of float32
        enough = NVIDIAMemoryManager(device=device, free_bytes=lambda: 150 * MIB)
        tensor = enough.allocate_with_oom_protection(shape, safety_margin=1.5)
        assert tensor.nbytes == 100 * MIB
        short = NVIDIAMemoryManager(device=device, free_bytes=lambda: 150 * MIB - 1)
        with pytest.raises(errors.OutOfMemoryError):
            short.allocate_with_oom_protection(shape, safety_margin=1.5)
        assert short.allocate_with_oom_protection(shape).nbytes == 100 * MIB  # 1.2 by the config

    def test_optimization_warnings(self, device):
        pascal = Hardware.nvidia((6, 1))
        result = optimizer(device, pascal).optimize(mlp().to(device).eval(), "aggressive")
        reasons = dict(one.split(": ", 1) for one in result.warnings)
        assert reasons["bfloat16"] == "nvidia sm_61 has no native bf16"
        assert reasons["compile"] == "no sample inputs to compile with"
        assert reasons["channels_last"] == "no 2-D convolution"
        assert result.optimizations_applied == ()
