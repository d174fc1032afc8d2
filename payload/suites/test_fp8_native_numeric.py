"""Numbers of float8 beyond the named suite: every code, scales, rounding. See fp8_reference.py."""

from __future__ import annotations

import math

import pytest
import torch

from suites import fp8_reference as ref
from suites.numerics import assert_close
from torchbridge import fp8
from torchbridge.float8 import amax_of, format_of, native_dtype
from torchbridge.fp8 import FP8Dtype, FP8QuantizedTensor, Granularity

pytestmark = pytest.mark.usefixtures("in_float8")

DTYPES = list(ref.LAYOUTS)
SHAPES = [(1, 1), (3, 5), (128, 128), (129, 257), (300, 70)]
BLOCKS = {"tensor": (None, None), "row": (1, None), "block": (1, 128), "tile": (128, 128)}
named = {"ids": lambda value: str(value).removeprefix("torch.")}


def codes(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """All 256 numbers."""
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
        """Halfway goes to the even code; a hair off halfway to the nearer one."""
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
        assert found[4:].isnan().all()  # not a large number: what overflowed must be seen

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
