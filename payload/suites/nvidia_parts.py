"""Named tests of attention, of CUDA's utilities, and of all parts together.

Collected by test_nvidia_backend.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites.backend_models import HOPPER, L4, in_float64, mlp, resnet
from suites.numerics import assert_close, relative_error, rms_error
from suites.nvidia_fakes import MIB, FakeCuda, NoCuda, backend, explicit, optimizer
from torchbridge.attention import FlashAttention3, PathRefused, create_flash_attention_3
from torchbridge.backends import errors
from torchbridge.backends.nvidia import (
    CUDADeviceManager,
    CUDAOptimizations,
    CUDAUtilities,
    FP8Compiler,
    NVIDIAMemoryManager,
    create_cuda_integration,
)
from torchbridge.config import Config


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

    def test_create_flash_attention_3(self, device):
        layer = create_flash_attention_3(64, 4, causal=True).to(device)
        assert type(layer) is FlashAttention3
        x = torch.randn(2, 10, 64, device=device)
        assert_close(layer(x), explicit(layer, x)[0])

    def test_flash_attention_dropout(self, device):
        layer = FlashAttention3(64, 4, dropout=0.3).to(device)
        x = torch.randn(1, 10, 64, device=device).expand(2000, -1, -1)
        expected = layer.eval()(x[:1]).detach()
        assert_close(expected, explicit(layer, x[:1])[0])  # none in evaluation
        dropped = layer.train()(x).detach()
        assert relative_error(dropped[:1], expected) > 0.05
        assert_close(dropped.mean(dim=0, keepdim=True), expected, 0.05)  # it is made up for

    def test_flash_attention_invalid_dimensions(self):
        for width, heads in ((65, 8), (63, 4)):
            with pytest.raises(ValueError, match=f"{width} is not divisible by num_heads {heads}"):
                FlashAttention3(width, heads)
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
        layer.path = "flash_attn"  # float32 is never its
        with pytest.raises(PathRefused, match="flash_attn"):
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
        expected = in_float64(model, x)
        config = Config().update(precision={"allow_tf32": True})
        made = CUDAOptimizations(config, device=device, hardware=L4)
        prepared = made.optimize_model(model)
        assert prepared.applied == ("channels_last",)
        assert_close(prepared.model(x), expected)
        cudnn = torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark
        with made.flags() as told:
            assert told == {"tf32": True, "cudnn_benchmark": True}
            assert torch.get_float32_matmul_precision() == "high"
            assert (cudnn.allow_tf32, cudnn.benchmark) == (True, True)
        after = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark
        assert after == before
        assert not CUDAOptimizations(device=device, hardware=L4).wanted_flags()["tf32"]

    def test_get_cuda_env_info(self):
        info = CUDAUtilities(FakeCuda()).get_cuda_env_info()
        assert (info["torch"], info["cuda"]) == (torch.__version__, torch.version.cuda)
        assert (info["available"], info["device_count"]) == (True, 2)
        assert info["devices"] == ["NVIDIA L4", "NVIDIA L4"]
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
        assert told["max_threads_per_block"] is None  # not told, so not made up


class TestNVIDIAIntegration:
    def test_full_optimization_pipeline(self, device):
        model, x = resnet().to(device), torch.randn(2, 3, 16, 16, device=device)
        expected = in_float64(model, x)
        result = optimizer(device).optimize_for_inference(model, (x,))
        assert result.optimization_level == "aggressive"
        assert {"fold_conv_bn", "bfloat16", "compile"} <= set(result.optimizations_applied)
        assert result.device_info["device"] == str(device)
        assert result.memory_stats["allocated_bytes"] > 0
        assert_close(result.optimized_model(x), expected, 3e-2)

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
