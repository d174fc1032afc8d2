"""The named tests of the fused layers. Their reference is plain float64 formulas on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites.kernel_reference import (
    feed_forward,
    gelu,
    linear_activation,
    reference_gradients,
    silu,
)
from suites.numerics import assert_close, needs_cuda, relative_error
from suites.operators import calls_of
from torchbridge.kernels import (
    FusedFFNLayer,
    FusedLinearGELU,
    FusedLinearSiLU,
    create_fused_ffn_layer,
)

ROWS = 24


def assert_computes(layer: nn.Module, activation, x: torch.Tensor) -> None:
    """Check that the output equals the formula, with gradients (composed path) and without."""
    expected = linear_activation(layer, activation, x)
    assert_close(layer(x), expected)
    assert layer.path_taken == "composed"  # the parameters require gradients
    with torch.no_grad():
        assert_close(layer(x), expected)


def assert_gradients(layer: nn.Module, activation, x: torch.Tensor) -> None:
    """Check the gradients of x, weight and bias against autograd of the float64 formula."""
    x = x.clone().requires_grad_()
    upstream = torch.randn(*x.shape[:-1], layer.out_features, device=x.device)
    layer(x).backward(upstream)
    actual = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    for one, expected in zip(
        actual, reference_gradients(layer, activation, x, upstream), strict=True
    ):
        assert_close(one, expected)


class TestFusedLinearGELU:
    def test_module_initialization(self):
        layer = FusedLinearGELU(512, 2048)
        assert (layer.in_features, layer.out_features, layer.approximate) == (512, 2048, "none")
        assert (layer.weight.shape, layer.bias.shape) == ((2048, 512), (2048,))
        bound = 512**-0.5  # uniform, as nn.Linear
        for parameter in (layer.weight, layer.bias):
            assert 0.99 * bound < parameter.abs().max().item() <= bound
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        with pytest.raises(ValueError, match=r"none.*tanh.*'fast'"):
            FusedLinearGELU(4, 4, approximate="fast")

    def test_module_initialization_no_bias(self, device):
        layer = FusedLinearGELU(512, 2048, bias=False).to(device)
        assert layer.bias is None
        assert [name for name, _ in layer.named_parameters()] == ["weight"]
        assert_computes(layer, gelu, torch.randn(ROWS, 512, device=device))

    @pytest.mark.parametrize(
        ("in_features", "out_features"), [(512, 2048), (1024, 4096), (768, 3072), (2048, 8192)]
    )
    def test_correctness_various_dimensions(self, device, in_features, out_features):
        layer = FusedLinearGELU(in_features, out_features).to(device)
        assert_computes(layer, gelu, torch.randn(ROWS, in_features, device=device))

    def test_correctness_3d_input(self, device):
        layer = FusedLinearGELU(64, 96).to(device)
        x = torch.randn(3, 7, 64, device=device)
        assert_computes(layer, gelu, x)
        assert_close(layer(x)[1, 4], layer(x[1, 4]), 1e-6)

    def test_output_shape(self, device):
        layer = FusedLinearGELU(6, 10).to(device).requires_grad_(False)
        for leading in ((), (1,), (5,), (2, 3), (2, 0), (2, 3, 4, 1)):
            x = torch.randn(*leading, 6, device=device)
            assert layer(x).shape == (*leading, 10)
        with pytest.raises(RuntimeError):
            layer(torch.randn(2, 7, device=device))

    def test_backward_pass(self, device):
        for bias in (True, False):
            layer = FusedLinearGELU(33, 17, bias).to(device)
            assert_gradients(layer, gelu, torch.randn(2, 9, 33, device=device))


class TestFusedLinearSiLU:
    def test_module_initialization(self):
        layer = FusedLinearSiLU(512, 2048)
        assert (layer.weight.shape, layer.bias.shape) == ((2048, 512), (2048,))
        assert layer.weight.abs().max().item() <= 512**-0.5
        assert FusedLinearSiLU(4, 8, bias=False).bias is None

    @pytest.mark.parametrize(
        ("in_features", "out_features"), [(512, 2048), (768, 3072), (1024, 4096)]
    )
    def test_correctness_various_dimensions(self, device, in_features, out_features):
        layer = FusedLinearSiLU(in_features, out_features).to(device)
        assert_computes(layer, silu, torch.randn(ROWS, in_features, device=device))

    def test_backward_pass(self, device):
        for bias in (True, False):
            layer = FusedLinearSiLU(33, 17, bias).to(device)
            assert_gradients(layer, silu, torch.randn(2, 9, 33, device=device))


class TestFusedFFNLayer:
    def test_create_fused_ffn_gelu(self, device):
        layer = create_fused_ffn_layer(64, 256, activation="gelu").to(device)
        assert isinstance(layer, FusedFFNLayer)
        assert isinstance(layer.up, FusedLinearGELU)
        assert sum(p.numel() for p in layer.parameters()) == 2 * 64 * 256 + 256 + 64
        x = torch.randn(ROWS, 64, device=device)
        assert_close(layer(x), feed_forward(layer, gelu, x))
        with pytest.raises(ValueError, match="gelu, silu, got 'relu'"):
            create_fused_ffn_layer(64, 256, activation="relu")

    def test_create_fused_ffn_silu(self, device):
        layer = create_fused_ffn_layer(64, 256, activation="silu", bias=False).to(device)
        assert isinstance(layer.up, FusedLinearSiLU)
        assert sum(p.numel() for p in layer.parameters()) == 2 * 64 * 256
        x = torch.randn(ROWS, 64, device=device)
        assert_close(layer(x), feed_forward(layer, silu, x))

    def test_ffn_forward_pass(self, device):
        layer = FusedFFNLayer(48, 192).to(device)
        x = torch.randn(2, 5, 48, device=device)
        with torch.no_grad():
            assert_close(layer(x), feed_forward(layer, gelu, x))
            inferred = layer.path_taken
        assert_close(layer(x), feed_forward(layer, gelu, x))
        assert layer.path_taken == "composed"
        assert inferred in ("epilogue", "composed")

    def test_ffn_with_custom_output_dim(self, device):
        layer = FusedFFNLayer(48, 192, 20).to(device)
        x = torch.randn(2, 5, 48, device=device)
        assert layer(x).shape == (2, 5, 20)
        assert_close(layer(x), feed_forward(layer, gelu, x))


@needs_cuda()
class TestFusedLinearCUDA:
    def test_fused_linear_gelu_cuda(self, device):
        layer = FusedLinearGELU(512, 2048, approximate="tanh").to(device)
        x = torch.randn(64, 512, device=device)
        with torch.no_grad():
            assert_close(layer(x), linear_activation(layer, gelu, x, approximate="tanh"))
        assert layer.path_taken == "epilogue"

    def test_fused_linear_silu_cuda(self, device):
        layer = FusedLinearSiLU(512, 2048).to(device)
        assert_computes(layer, silu, torch.randn(64, 512, device=device))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_cuda_different_dtypes(self, device, dtype):
        layer = FusedLinearGELU(256, 512, approximate="tanh").to(device, dtype)
        x = torch.randn(64, 256, device=device, dtype=dtype)
        with torch.no_grad():
            output = layer(x)
        assert output.dtype == dtype
        assert_close(output, linear_activation(layer, gelu, x, approximate="tanh"))


class TestFusedLinearPerformance:
    def test_performance_vs_pytorch(self, device):
        """The layer launches at most as many operators as torch; a benchmark measures the time."""
        x = torch.randn(16, 64, device=device)
        for approximate in ("none", "tanh"):
            layer = FusedLinearGELU(64, 128, approximate=approximate)
            layer = layer.to(device).requires_grad_(False)
            plain = nn.Sequential(nn.Linear(64, 128), nn.GELU(approximate)).to(device)
            plain[0].load_state_dict(layer.state_dict())
            plain.requires_grad_(False)
            assert relative_error(layer(x), plain(x)) <= 1e-6  # the first call tests the device
            assert calls_of(plain, x) == ["addmm", "gelu"]
            one = layer.path_taken == "epilogue"
            expected = ["_addmm_activation"] if one else ["addmm", "gelu"]
            assert calls_of(layer, x) == expected
