"""Rows quantised to float8 with scales: the library's numbers, and Triton's, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites.covering import pairwise
from suites.interpreter import interpreted, needs_triton, run, run_far_apart
from torchbridge.fp8 import FP8QuantizedTensor, Granularity
from torchbridge.hardware import probe
from torchbridge.kernels import REGISTRY, KernelRefused, quantise_rows

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# several rows per program, one row per program, and wide rows; no size is a multiple of a block
SHAPES = [(1, 1), (70, 100), (5, 129), (3, 1000), (9, 1500), (4, 5000), (3, 9001), (2, 17001)]


def expected_of(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return x [m, n] in a float8 dtype and its scales [m, 1], computed by row in float32."""
    limit, rows, scales = torch.finfo(dtype).max, [], []
    for row in x.detach().cpu().float():
        amax = row.abs().max() if row.numel() else torch.zeros(())
        scale = torch.ones(()) if amax == 0 else (limit * (1 / amax)).clamp(max=2.0**126)
        scaled = row * scale
        rows.append(torch.where(scaled.isinf(), torch.nan, scaled.clamp(-limit, limit)).to(dtype))
        scales.append(scale.reshape(1))
    return torch.stack(rows), torch.stack(scales)


def assert_same_bits(actual: FP8QuantizedTensor, x: Tensor, encoding: torch.dtype) -> None:
    """Check that numbers and scales equal the reference bit for bit; the sign of NaN is ignored."""
    for one, other in zip((actual.data, actual.scale), expected_of(x, encoding), strict=True):
        one = one.cpu()
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        wide, wanted = one.float(), other.float()
        assert torch.equal(wide.isnan(), wanted.isnan())
        real = ~wanted.isnan()
        assert torch.equal(wide[real].view(torch.int32), wanted[real].view(torch.int32))


class TestFunction:
    def test_paths(self, device):
        x = torch.randn(5, 33, device=device)
        by_rows = FP8QuantizedTensor.from_tensor(x, granularity=Granularity.ROW)
        for path in ("torch", "auto"):
            made = quantise_rows(x, path=path)
            assert torch.equal(made.dequantize(), by_rows.dequantize())
        with pytest.raises(KernelRefused, match="quantise_rows has no kernel 'cuda'; it has: trit"):
            quantise_rows(x, path="cuda")
        if (vendor := probe(device).vendor) not in ("nvidia", "amd"):
            reason = f"quantise_rows/triton: needs amd or nvidia; this is {vendor}"
            with pytest.raises(KernelRefused, match=reason):
                quantise_rows(x, path="triton")

    def test_under_torch_compile_it_is_the_librarys(self, device):
        torch.compiler.reset()
        x = torch.randn(5, 33, device=device)
        compiled = torch.compile(lambda x: quantise_rows(x).dequantize(), backend="eager")
        assert torch.equal(compiled(x), quantise_rows(x, path="torch").dequantize())

    def test_autocast_leaves_float8_alone(self, device, monkeypatch):
        asked, lookup = [], REGISTRY.lookup
        monkeypatch.setattr(REGISTRY, "lookup", lambda *ask: asked.append(ask[0]) or lookup(*ask))
        with torch.autocast(device.type, torch.bfloat16):
            quantise_rows(torch.randn(3, 8, device=device))
        assert asked == ["quantise_rows"]

    def test_float8_formats(self, device):
        x = torch.randn(4, 40, device=device)
        native = quantise_rows(x).data.dtype
        short = native is torch.float8_e4m3fn
        five = quantise_rows(x, torch.float8_e5m2 if short else torch.float8_e5m2fnuz)
        assert (five.scale.shape, five.dtype) == ((4, 1), torch.float32)
        other = FLOAT8[1] if short else FLOAT8[0]
        with pytest.raises(KernelRefused, match=f"computes with .*, not {str(other)[13:]}"):
            quantise_rows(x, other)
        with pytest.raises(ValueError, match="a matrix has rows"):
            quantise_rows(x[0])


@needs_triton
class TestTriton:
    def case(self, x: Tensor, encoding: torch.dtype) -> FP8QuantizedTensor:
        """Run the kernel, check its bits against the reference, and return its output.

        On a device the test is skipped for a float8 dtype that the device does not have.
        """
        if not interpreted():
            try:
                quantise_rows(torch.ones(1, 1, device="cuda"), encoding, path="triton")
            except KernelRefused as refused:
                pytest.skip(str(refused))
        made = run("quantise.in_triton", x, encoding)
        if x.numel():
            assert_same_bits(made, x, encoding)
        return made

    @pytest.mark.parametrize(("shape", "dtype", "encoding"), pairwise(SHAPES, DTYPES, FLOAT8))
    def test_bit_for_bit(self, device, encoding, dtype, shape):
        sizes = 10 ** torch.randn(shape[0], 1, device=device)
        self.case((sizes * torch.randn(shape, device=device)).to(dtype), encoding)

    @pytest.mark.parametrize("encoding", FLOAT8)
    @pytest.mark.parametrize("width", [90, 17001])
    def test_extremes(self, device, encoding, width):
        x = torch.randn(8, width, device=device)
        x[0] = 0
        x[1] *= 1e30
        x[2] = 1e-42  # of subnormal numbers, whose scale would be infinite
        x[3, width // 2] = torch.inf
        x[4, -1] = -torch.inf
        x[5, 0] = torch.nan
        x[6] = 2.5
        x[7, 0] = 3e38
        made = self.case(x, encoding)
        assert (made.scale[0].item(), made.scale[2].item()) == (1.0, 2.0**126)
        assert (made.data[6].float() == torch.finfo(encoding).max).all()
        assert made.data[3].float().isnan().sum() == 1  # the other numbers are zero
        assert made.data[5].float().isnan().all()

    def test_strides_and_empty(self, device):
        x = torch.randn(300, 8, device=device)
        for one in (x.t(), x[::3, :7], x[:0], x[:, :0], x[:1].expand(5, 8)):
            made = self.case(one, FLOAT8[0])
            rows, width = one.shape
            assert (tuple(made.shape), tuple(made.scale.shape)) == ((rows, width), (rows, 1))
            assert (made.scale == 1).all() or one.numel()

    def test_only_e4m3_of_a_matrix(self, device):
        with pytest.raises(ValueError, match=r"e4m3 of a matrix is computed, not .* \(2, 3, 4\)"):
            run("quantise.in_triton", torch.ones(2, 3, 4, device=device))
        with pytest.raises(ValueError, match=r"not torch\.float8_e5m2 of"):
            run("quantise.in_triton", torch.ones(2, 3, device=device), torch.float8_e5m2)

    def test_rows_that_lie_2_to_the_31_numbers_apart(self):
        far, near = run_far_apart("quantise.in_triton")
        assert torch.equal(far, near)
