"""Float8 beyond the named suite: rounding, scales, products, gradients, traced layers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from suites import fp8_reference as ref
from suites.covering import pairwise
from suites.numerics import assert_close, rms_error
from torchbridge import fp8
from torchbridge.float8 import amax_of, format_of, native_dtype
from torchbridge.fp8 import (
    FP8Dtype,
    FP8InferenceLinear,
    FP8QuantizedTensor,
    Granularity,
    NativeFP8Linear,
)
from torchbridge.fp8.matmul import find_path

pytestmark = pytest.mark.usefixtures("in_float8")

SHAPES = [(1, 1), (3, 5), (128, 128), (129, 257), (300, 70)]
BLOCKS = {"tensor": (None, None), "row": (1, None), "block": (1, 128), "tile": (128, 128)}


def codes(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return all 256 numbers of a float8 dtype."""
    return torch.arange(256, dtype=torch.uint8, device=device).view(dtype)


class TestCastTable:
    @pytest.mark.parametrize("fmt", list(FP8Dtype))
    def test_every_code_is_kept(self, device, fmt):
        dtype = native_dtype(fmt, device)
        numbers = codes(dtype, device).float()
        numbers = numbers[numbers.isfinite()]
        again = fp8.quantize_to_fp8(numbers, torch.ones((), device=device), fmt)
        assert torch.equal(again.float(), numbers)
        assert format_of(again.dtype) is fmt

    @pytest.mark.parametrize("fmt", list(FP8Dtype))
    def test_between_neighbours(self, device, fmt):
        """A midpoint of neighbours is rounded to the even code, another number to the nearer."""
        dtype = native_dtype(fmt, device)
        numbers = sorted({one for one in codes(dtype, device).float().tolist() if one >= 0})
        numbers = [one for one in numbers if math.isfinite(one)]
        low = torch.tensor(numbers[:-1], dtype=torch.float64)
        high = torch.tensor(numbers[1:], dtype=torch.float64)
        for share in (0.5, 0.49, 0.51):
            x = (low + (high - low) * share).float().to(device)
            found = fp8.quantize_to_fp8(x, torch.ones((), device=device), fmt).float().cpu()
            even = torch.tensor([low[i] if i % 2 == 0 else high[i] for i in range(len(low))])
            wanted = {0.5: even, 0.49: low, 0.51: high}[share]
            assert torch.equal(found.double(), wanted.double())

    @pytest.mark.parametrize("fmt", list(FP8Dtype))
    def test_saturation_and_what_is_not_finite(self, device, fmt):
        limit = ref.LIMITS[native_dtype(fmt, device)]
        x = torch.tensor([limit, 1.07 * limit, -1e30, 3e38, math.inf, -math.inf, math.nan])
        found = fp8.quantize_to_fp8(x.to(device), torch.ones((), device=device), fmt).float()
        assert found[:4].tolist() == [limit, limit, -limit, limit]
        assert found[4:].isnan().all()  # overflow must give NaN, not the largest number

    def test_format_of_other_dtypes(self):
        with pytest.raises(ValueError, match="float16"):
            format_of(torch.float16)


class TestScales:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("granularity", list(Granularity))
    def test_scales_by_block(self, device, shape, granularity):
        x = torch.randn(shape, device=device) * torch.logspace(-3, 3, shape[1], device=device)
        found = FP8QuantizedTensor.from_tensor(x, granularity=granularity)
        dtype, blocks = found.data.dtype, BLOCKS[granularity.value]
        height, width = (b or s for b, s in zip(blocks, shape, strict=True))
        if granularity is Granularity.TENSOR:
            assert found.scale.shape == ()
        else:
            assert found.scale.shape == (-(-shape[0] // height), -(-shape[1] // width))
        assert_close(found.dequantize(torch.float64), ref.snapped(x, dtype, blocks), 1e-6)

    @pytest.mark.parametrize("largest", [1e-45, 1e-40, 1e-38, 3e38])
    def test_extreme_numbers(self, device, largest):
        x = torch.tensor([0.0, largest, -largest / 2], device=device)
        scale = fp8.compute_fp8_scale(x)
        assert torch.isfinite(scale)
        assert torch.isfinite(scale.reciprocal())
        assert scale.reciprocal() > 0
        quantised = fp8.quantize_to_fp8(x, scale)
        assert quantised.float().isfinite().all()
        if largest >= 1e-36:
            assert_close(fp8.dequantize_from_fp8(quantised, scale), x, 0.04)

    def test_nothing_at_all(self, device):
        x = torch.empty(0, 8, device=device)
        assert FP8QuantizedTensor.from_tensor(x).dequantize().shape == (0, 8)
        rows = FP8QuantizedTensor.from_tensor(x, granularity=Granularity.ROW)
        assert rows.scale.shape == (0, 1)

    def test_scales_that_do_not_fit(self, device):
        x = torch.randn(4, 300, device=device)
        with pytest.raises(ValueError, match=r"\(4, 2\) do not fit shape \(4, 300\)"):
            fp8.quantize_to_fp8(x, torch.ones(4, 2, device=device))
        with pytest.raises(ValueError, match="need a matrix"):
            amax_of(x[0], Granularity.ROW)

    def test_transposing(self, device):
        x = torch.randn(24, 40, device=device)
        single = FP8QuantizedTensor.from_tensor(x)
        assert torch.equal(single.t().dequantize(), single.dequantize().t())
        with pytest.raises(ValueError, match="single scale"):
            FP8QuantizedTensor.from_tensor(x, granularity=Granularity.ROW).t()


E4M3, E5M2 = FP8Dtype
GRANULARITIES = ["tensor", "row", "block"]
ODD_SHAPES = [(1, 1, 1), (3, 5, 7), (17, 128, 16), (33, 130, 65), (64, 300, 129)]  # M, K, N


def pair(m: int, k: int, n: int, granularity: str, device: torch.device):
    """Return matrices [M, K] and [N, K] with rows of different magnitude, plain and quantised."""
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
        sizes = a.abs().amax(dim=1)[:, None] * b.abs().amax(dim=1)  # errors are relative by row
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
        ref.assert_gradients(layer, x, torch.randn(m, n, device=device))

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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
class TestTraced:
    """Forward and backward are one graph each; the backend runs torch's operations unchanged."""

    @pytest.mark.parametrize(
        ("granularity", "path", "dynamic"),
        [
            ("tensor", "auto", False),
            ("block", "auto", False),
            ("row", "auto", True),
            ("row", "dequantised", False),
            ("tensor", "predicted", True),
        ],
    )
    def test_training(self, device, granularity, path, dynamic):
        torch.compiler.reset()
        layer = NativeFP8Linear(272, 48, granularity=granularity, path=path, device=device)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        for rows in (5, 7) if dynamic else (5,):
            x = torch.randn(rows, 3, 272, device=device, requires_grad=True)
            gradients = []
            for one in (layer, traced):
                x.grad = layer.weight.grad = layer.bias.grad = None
                out = one(x)
                out.square().sum().backward()
                gradients.append((out.detach(), x.grad, layer.weight.grad, layer.bias.grad))
            for wanted, actual in zip(*gradients, strict=True):
                assert_close(actual, wanted, 1e-6)

    @pytest.mark.parametrize(("granularity", "path"), [("block", "auto"), ("row", "predicted")])
    def test_inference(self, device, granularity, path):
        torch.compiler.reset()
        plain = nn.Linear(272, 48, device=device)
        layer = FP8InferenceLinear(plain, granularity=granularity, path=path)
        x = torch.randn(5, 3, 272, device=device)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
        assert_close(traced(x), layer(x), 1e-6)

    def test_the_quantising_is_in_the_graph(self, device):
        """The producer of x and the quantisation of x are in one graph, so they can be fused."""
        graphs = []

        def keep(graph, _):
            graphs.append(graph)
            return graph

        layer = NativeFP8Linear(64, 32, bias=False, device=device)
        model = nn.Sequential(nn.GELU(), layer)
        torch.compiler.reset()
        torch.compile(model, backend=keep, fullgraph=True)(torch.randn(8, 64, device=device))
        assert len(graphs) == 1
        assert "gelu" in graphs[0].code
        inner = [one.code for one in graphs[0].children()] or [graphs[0].code]
        assert any("amax" in code or "abs" in code for code in [graphs[0].code, *inner])

    def test_a_synchronised_weight_is_used(self, device):
        torch.compiler.reset()
        layer = NativeFP8Linear(64, 32, bias=False, device=device).eval()
        x = torch.randn(8, 64, device=device)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
        wanted = layer(x)
        assert_close(traced(x), wanted, 1e-6)
        nn.init.ones_(layer.weight)
        assert rms_error(traced(x), wanted) > 0.5  # the graph kept no quantised weight
        layer.sync_weights()
        ones = layer(x)
        nn.init.zeros_(layer.weight)
        assert_close(traced(x), ones, 1e-6)
