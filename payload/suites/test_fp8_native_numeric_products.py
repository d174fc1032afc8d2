"""Float8 products and the layer's gradients: shapes, scales, paths. See fp8_reference.py."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from suites import fp8_reference as ref
from suites.covering import pairwise
from suites.numerics import assert_close, rms_error
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import FP8Dtype, FP8QuantizedTensor, Granularity, NativeFP8Linear
from torchbridge.fp8.matmul import find_path

pytestmark = pytest.mark.usefixtures("in_float8")

E4M3, E5M2 = FP8Dtype
GRANULARITIES = ["tensor", "row", "block"]
ODD_SHAPES = [(1, 1, 1), (3, 5, 7), (17, 128, 16), (33, 130, 65), (64, 300, 129)]  # M, K, N


def pair(m: int, k: int, n: int, granularity: str, device: torch.device):
    """Matrices [M, K] and [N, K] with rows of different size, as they are and quantised."""
    a = torch.randn(m, k, device=device) * torch.logspace(-1, 1, m, device=device)[:, None]
    b = torch.randn(n, k, device=device) * torch.logspace(1, -1, n, device=device)[:, None]
    kind = Granularity(granularity)
    of_b = Granularity.TILE if granularity == "block" else kind
    left = FP8QuantizedTensor.from_tensor(a, granularity=kind)
    return a, b, left, FP8QuantizedTensor.from_tensor(b, granularity=of_b)


class TestProducts:
    @pytest.mark.parametrize(
        ("path", "granularity", "shape"),
        pairwise(["auto", "dequantised"], GRANULARITIES, ODD_SHAPES),
        ids=str,
    )
    def test_against_double(self, device, shape, granularity, path):
        a, b, left, right = pair(*shape, granularity, device)
        out, taken = fp8.scaled_matmul(left, right, path=path)
        expected = ref.forward(a, b, left.data.dtype, granularity)
        ref.assert_kernel(out, expected)
        sizes = a.abs().amax(dim=1)[:, None] * b.abs().amax(dim=1)  # small rows count as much
        ref.assert_kernel(out / sizes, expected / sizes.cpu().double())
        works = path == "auto" and ref.kernel_works(device, granularity == "tensor")
        assert taken.name == ("scaled_mm" if works else "dequantised")

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
    def test_output_dtypes(self, device, dtype):
        a, b, left, right = pair(20, 48, 32, "tensor", device)
        out, _ = fp8.scaled_matmul(left, right, out_dtype=dtype)
        assert out.dtype == dtype
        assert_close(out, ref.forward(a, b, left.data.dtype, "tensor"), 8e-3)

    @pytest.mark.parametrize(("m", "k", "n"), [(0, 16, 16), (16, 0, 16), (16, 16, 0)])
    def test_no_rows(self, device, m, k, n):
        left, right = (
            FP8QuantizedTensor.from_tensor(torch.ones(s, k, device=device)) for s in (m, n)
        )
        out, _ = fp8.scaled_matmul(left, right)
        assert torch.equal(out, torch.zeros(m, n, device=device))

    def test_refusals(self, device):
        a, b = (FP8QuantizedTensor.from_tensor(torch.ones(2, k, device=device)) for k in (16, 32))
        with pytest.raises(ValueError, match="inner widths"):
            fp8.scaled_matmul(a, b)
        with pytest.raises(ValueError, match="fastest"):
            fp8.scaled_matmul(a, a, path="fastest")
        integers = device, torch.int8, torch.int8, torch.float32  # no device has this product
        assert find_path(*integers, single=True).name == "dequantised"
        assert "does not run" in find_path(*integers, single=True).fallback
        with pytest.raises(RuntimeError, match=r"int8.*path='dequantised'"):
            find_path(*integers, single=True, path="scaled_mm")


class TestGradients:
    @pytest.mark.parametrize("granularity", GRANULARITIES)
    @pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
    def test_against_double(self, device, shape, granularity):
        m, k, n = shape
        layer = NativeFP8Linear(k, n, granularity=granularity, device=device)
        x = torch.randn(m, k, device=device, requires_grad=True)
        gradient = torch.randn(m, n, device=device)
        layer(x).backward(gradient)
        dtypes = native_dtype(E4M3, device), native_dtype(E5M2, device)
        by_x, by_weight = ref.backward(gradient, x, layer.weight, dtypes, granularity)
        ref.assert_kernel(x.grad, by_x)
        ref.assert_kernel(layer.weight.grad, by_weight)
        assert_close(layer.bias.grad, gradient.sum(dim=0), 1e-5)

    def test_only_what_is_asked_for(self, device):
        layer = NativeFP8Linear(32, 16, device=device)
        layer(torch.randn(4, 32, device=device)).sum().backward()
        assert layer.weight.grad.abs().max() > 0
        frozen = NativeFP8Linear(32, 16, device=device).requires_grad_(False)
        x = torch.randn(4, 32, device=device, requires_grad=True)
        frozen(x).sum().backward()
        assert frozen.weight.grad is None
        assert x.grad.abs().max() > 0


class TestLayer:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_dtypes(self, device, dtype):
        layer = NativeFP8Linear(64, 32, device=device, dtype=dtype)
        x = torch.randn(16, 64, device=device, dtype=dtype, requires_grad=True)
        out = layer(x)
        assert out.dtype == dtype
        assert rms_error(out, ref.exact(x, layer)) <= ref.PRODUCT[E4M3]
        out.sum().backward()
        assert (x.grad.dtype, layer.weight.grad.dtype) == (dtype, dtype)

    @pytest.mark.parametrize("path", ["auto", "dequantised"])
    def test_autocast(self, device, path):
        layer = NativeFP8Linear(64, 32, path=path, device=device)
        x = torch.randn(16, 64, device=device)
        with torch.autocast(device.type, torch.bfloat16):
            out = layer(x)
        assert out.dtype == torch.bfloat16
        expected = layer(x)
        assert_close(out, expected, 8e-3)

    def test_paths_agree(self, device):
        layer = NativeFP8Linear(96, 48, device=device)
        slow = copy.deepcopy(layer)
        slow.path = "dequantised"
        x = torch.randn(20, 96, device=device)
        ref.assert_kernel(layer(x), slow(x).detach().cpu().double())
        assert {name: one.name for name, one in slow.paths.items()} == {
            "forward": "dequantised",
            "grad_input": "dequantised",
            "grad_weight": "dequantised",
        }
        with pytest.raises(ValueError, match="fastest"):
            NativeFP8Linear(8, 8, path="fastest", device=device)(x[:, :8])

    def test_strides(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        x = torch.randn(64, 5, 3, device=device).transpose(0, 2)
        assert not x.is_contiguous()
        assert torch.equal(layer(x), layer(x.contiguous()))

    def test_no_tokens(self, device):
        layer = NativeFP8Linear(64, 32, device=device)
        x = torch.empty(2, 0, 64, device=device, requires_grad=True)
        out = layer(x)
        out.sum().backward()
        assert out.shape == (2, 0, 32)
        assert layer.weight.grad.abs().max().item() == 0

    def test_margin_is_heeded(self, device):
        layer = NativeFP8Linear(64, 32, margin=3.0, device=device)
        plain = NativeFP8Linear(64, 32, device=device)
        plain.load_state_dict(layer.state_dict())
        assert torch.equal(layer.sync_weights().scale * 8, plain.sync_weights().scale)

    def test_moving_forgets_the_synchronised_weight(self, device):
        layer = NativeFP8Linear(64, 32, device=device).eval()
        layer.sync_weights()
        nn.init.ones_(layer.weight)
        x = torch.randn(4, 64, device=device)
        moved = layer.to(torch.float64).to(torch.float32)
        assert rms_error(moved(x), ref.exact(x, layer)) <= ref.PRODUCT[E4M3]
