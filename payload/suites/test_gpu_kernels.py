"""Numbers of the Triton kernels for rows, on the device or interpreted: against float64."""

from __future__ import annotations

import pytest
import torch

from suites import row_reference as reference
from suites.interpreter import (
    differentiate,
    differentiate_twice,
    interpreted,
    needs_triton,
    penalised,
    run,
    run_far_apart,
)
from suites.numerics import assert_close
from torchbridge.fp8 import FP8QuantizedTensor, Granularity, scaled_matmul
from torchbridge.kernels import KernelRefused, functional

# the output's own rounding; a gradient is made of numbers that were rounded once before
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = list(TOLERANCE)
# several rows for a program, one for a program, and wide rows; none a multiple of anything
SHAPES = [(1, 1), (2, 3, 7), (70, 100), (5, 129), (3, 1000), (9, 1500), (4, 5000), (3, 9001)]
WIDE = (2, 17001)
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]


def short(dtype: torch.dtype) -> str:
    """float32"""
    return str(dtype).removeprefix("torch.")


def assert_near(actual, expected) -> None:
    """Within the tolerance of the dtype of each."""
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other, TOLERANCE[one.dtype])


def affine(width: int, dtype: torch.dtype, device, count: int) -> list[torch.Tensor]:
    """Weight, and bias, that want a gradient."""
    given = (torch.randn(width, device=device).to(dtype) for _ in range(count))
    return [one.requires_grad_() for one in given]


def norm_case(name: str, x: torch.Tensor, upstream: torch.Tensor, eps: float = 1e-5) -> None:
    """Output and all gradients of a norm of x."""
    tensors = [x.requires_grad_(), *affine(x.shape[-1], x.dtype, x.device, NORMS[name][1])]
    y, slopes = differentiate(f"norms.{name}", upstream, *tensors, eps=eps)
    expected, wanted = reference.gradients(NORMS[name][0], upstream, tensors, eps)
    assert y.dtype == x.dtype
    assert y.is_contiguous()
    assert_near([y, *slopes[1:]], [expected, *wanted[1:]])
    # that of x is the difference of numbers as large as these
    spread = reference.spread(x, eps, centred=name == "layer_norm")
    scale = ((upstream * tensors[1].detach()).cpu().double().abs() / spread).max()
    error = (slopes[0].cpu().double() - wanted[0]).abs().max()
    assert error <= TOLERANCE[x.dtype] * scale


NORMS = {"rms_norm": (reference.rms_norm, 1), "layer_norm": (reference.layer_norm, 2)}
names = pytest.mark.parametrize("name", NORMS)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=short)


def by_rows(x: torch.Tensor) -> FP8QuantizedTensor:
    """The library's own way."""
    return FP8QuantizedTensor.from_tensor(x, granularity=Granularity.ROW)


@needs_triton
class TestNorms:
    @names
    @dtypes
    @pytest.mark.parametrize("shape", [*SHAPES, WIDE], ids=str)
    def test_against_float64(self, device, name, dtype, shape):
        x, upstream = torch.randn(2, *shape, device=device).to(dtype)
        norm_case(name, x, upstream)

    @names
    @pytest.mark.parametrize("seed", range(5))
    def test_seeds(self, device, name, seed):
        torch.manual_seed(seed)
        rows, width = int(torch.randint(1, 60, ())), int(torch.randint(2, 3000, ()))
        x, upstream = torch.randn(2, rows, width, device=device)
        norm_case(name, 3 * x + 1, upstream)

    @names
    @pytest.mark.parametrize("width", [300, 9001])
    def test_any_strides(self, device, name, width):
        square = torch.randn(width, 6, device=device)
        norm_case(name, square.t(), torch.randn(6, width, device=device))
        sliced = torch.randn(6, 2 * width, device=device)[1::2, width // 2 : width // 2 + width]
        assert sliced.stride(0) > width
        norm_case(name, sliced, torch.randn(1, 1, device=device).expand(3, width))
        tall = torch.randn(2, 3, width, device=device).transpose(0, 1)
        norm_case(name, tall, torch.randn(2, 3, width, device=device).transpose(0, 1))

    @names
    @pytest.mark.parametrize("shape", [(0, 5), (2, 0, 4), (3, 0)], ids=str)
    def test_empty(self, device, name, shape):
        x = torch.empty(shape, device=device, requires_grad=True)
        tensors = [x, *affine(shape[-1], x.dtype, device, NORMS[name][1])]
        y, slopes = differentiate(f"norms.{name}", torch.empty(shape, device=device), *tensors)
        assert y.shape == slopes[0].shape == shape
        assert all(torch.equal(one, torch.zeros_like(one)) for one in slopes[1:])

    @names
    @pytest.mark.parametrize("shape", [(40, 100), (3, 9001)], ids=str)
    def test_without_weights(self, device, name, shape):
        x, upstream = torch.randn(2, *shape, device=device)
        y, slopes = differentiate(f"norms.{name}", upstream, x.requires_grad_(), eps=1e-5)
        nothing = [None] * NORMS[name][1]
        expected, wanted = reference.gradients(
            lambda one: NORMS[name][0](one, *nothing, 1e-5), upstream, [x]
        )
        assert_near([y, *slopes], [expected, *wanted])

    @pytest.mark.parametrize("width", [500, 9001])
    def test_bias_alone_wants_a_gradient(self, device, width):
        x, upstream = torch.randn(2, 8, width, device=device)
        weight, bias = affine(width, x.dtype, device, 2)
        _, slopes = differentiate("norms.layer_norm", upstream, x, weight.detach(), bias)
        assert_near(slopes, [upstream.double().sum(0)])

    @names
    @pytest.mark.parametrize("shape", [(1,), (32,), (1, 64)], ids=str)
    def test_weights_of_another_shape_or_place(self, device, name, shape):
        x = torch.ones(2, 64, device=device)
        for weights in ([torch.ones(shape)], [x[0], torch.ones(shape)])[: NORMS[name][1]]:
            with pytest.raises(ValueError, match=rf"\(2, 64\) on .* cannot have .*\({shape[0]}"):
                run(f"norms.{name}", x, *(one.to(device) for one in weights))
        with pytest.raises(ValueError, match="on meta"):
            run(f"norms.{name}", x, x[0].to("meta"))

    @names
    @pytest.mark.parametrize("width", [700, 9001])
    def test_same_bits_twice(self, device, name, width):
        x, upstream = torch.randn(2, 50, width, device=device)
        tensors = [x.requires_grad_(), *affine(width, x.dtype, device, NORMS[name][1])]
        first, second = (differentiate(f"norms.{name}", upstream, *tensors) for _ in range(2))
        pairs = zip([first[0], *first[1]], [second[0], *second[1]], strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)

    @pytest.mark.parametrize("width", [900, 9001])
    def test_variance_of_a_small_spread_far_from_zero(self, device, width):
        x = 1e4 + torch.randn(4, width, device=device)  # squares would lose all of it
        y = run("norms.layer_norm", x)
        expected = reference.layer_norm(reference.double(x), None, None, 1e-5)
        assert_close(y, expected, 5e-4)  # of the mean, 24 bits: 1e4 * 2^-24

    @names
    @pytest.mark.parametrize("width", [1000, 9001])
    def test_squares_beyond_half_precision(self, device, name, width):
        x = (6e4 * torch.rand(3, width, device=device)).half()
        norm_case(name, x, torch.randn(3, width, device=device).half())

    @pytest.mark.parametrize("width", [640, 9216])
    def test_rows_of_equal_values(self, device, width):
        x = torch.tensor([[3.0], [0.0], [-512.0]], device=device).expand(3, width)
        weight, bias = torch.randn(2, width, device=device)
        y = run("norms.layer_norm", x, weight, bias)
        assert torch.equal(y, bias.expand(3, width))
        flat = run("norms.rms_norm", x, None, 0.25)
        levels = x[:, 0] / (x[:, 0].square() + 0.25).sqrt()
        assert_close(flat, levels[:, None].expand(3, width), 1e-6)

    @dtypes
    def test_eps_is_torchs_unless_given(self, device, dtype):
        x = 1e-3 * torch.randn(4, 90, device=device).to(dtype)
        expected = reference.rms_norm(reference.double(x), None, torch.finfo(dtype).eps)
        assert_near([run("norms.rms_norm", x)], [expected])


@needs_triton
class TestSoftmax:
    @dtypes
    @pytest.mark.parametrize("shape", [*SHAPES, WIDE], ids=str)
    def test_against_float64(self, device, dtype, shape):
        x, upstream = torch.randn(2, *shape, device=device).to(dtype)
        self.case(4 * x, upstream)

    @pytest.mark.parametrize("seed", range(5))
    def test_seeds(self, device, seed):
        torch.manual_seed(seed)
        rows, width = int(torch.randint(1, 60, ())), int(torch.randint(2, 3000, ()))
        x, upstream = torch.randn(2, rows, width, device=device)
        self.case(8 * x, upstream)

    def case(self, x, upstream) -> None:
        """Output, its sum, and the gradient."""
        y, slopes = differentiate("softmax.softmax", upstream, x.requires_grad_())
        expected, wanted = reference.gradients(reference.softmax, upstream, [x])
        assert (y.dtype, y.is_contiguous()) == (x.dtype, True)
        assert_close(y, expected, TOLERANCE[x.dtype])
        # a gradient is the difference of two products of rounded numbers
        scale = (upstream.double().abs().amax() * expected.amax()).item()
        error = (slopes[0].cpu().double() - wanted[0]).abs().amax().item()
        assert error <= 2 * TOLERANCE[x.dtype] * scale

    @pytest.mark.parametrize("width", [300, 17001])
    def test_any_strides(self, device, width):
        upstream = torch.randn(6, 1, device=device).expand(6, width)
        self.case(torch.randn(width, 6, device=device).t(), upstream)
        sliced = torch.randn(3, 2 * width, device=device)[::2, 5 : 5 + width]
        self.case(sliced, torch.randn(width, 2, device=device).t())

    @pytest.mark.parametrize("shape", [(0, 5), (2, 0, 4), (3, 0)], ids=str)
    def test_empty(self, device, shape):
        x = torch.empty(shape, device=device, requires_grad=True)
        y, slopes = differentiate("softmax.softmax", torch.empty(shape, device=device), x)
        assert y.shape == slopes[0].shape == shape

    @pytest.mark.parametrize("width", [100, 6000, 17001])
    def test_minus_infinity(self, device, width):
        x = torch.randn(4, width, device=device)
        x[0, : 3 * width // 4] = -torch.inf  # whole blocks of a wide row come first
        x[1, width // 3 :] = -torch.inf
        x[2] = -torch.inf
        x[3, 1:] = -torch.inf
        y = run("softmax.softmax", x).cpu()
        masked = x.cpu().isneginf()
        assert y[2].isnan().all()  # as torch's
        assert (y[[0, 1, 3]][masked[[0, 1, 3]]] == 0).all()
        assert y[3, 0] == 1
        expected = reference.softmax(reference.double(x[[0, 1, 3]]))
        assert_close(y[[0, 1, 3]], expected, TOLERANCE[y.dtype])

    @pytest.mark.parametrize("width", [64, 8192, 32768])
    def test_large_and_equal_values(self, device, width):
        x = torch.tensor([[3e38], [-3e38], [0.0]], device=device).expand(3, width)
        assert torch.equal(run("softmax.softmax", x), torch.full_like(x, 1 / width))
        apart = torch.full((1, width), -3e38, device=device)
        apart[0, -1] = 3e38
        one = torch.zeros_like(apart)
        one[0, -1] = 1
        assert torch.equal(run("softmax.softmax", apart), one)

    @pytest.mark.parametrize("width", [700, 17001])
    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_what_is_not_finite_fills_its_row(self, device, width, value):
        x = torch.randn(3, width, device=device)
        x[1, width // 2] = value
        y = run("softmax.softmax", x)
        assert y[1].isnan().all()
        assert_close(y[[0, 2]], reference.softmax(reference.double(x[[0, 2]])), 2e-6)

    @pytest.mark.parametrize("width", [700, 17001])
    def test_same_bits_twice(self, device, width):
        x, upstream = torch.randn(2, 5, width, device=device)
        x.requires_grad_()
        first, second = (differentiate("softmax.softmax", upstream, x) for _ in range(2))
        assert torch.equal(first[0], second[0])
        assert torch.equal(first[1][0], second[1][0])


@needs_triton
@pytest.mark.parametrize("name", [*NORMS, "softmax"])
@pytest.mark.parametrize("width", [40, 17001])
def test_second_derivatives(device, name, width):
    formula, count = NORMS.get(name, (reference.softmax, 0))
    x, upstream = 2 * torch.randn(2, 3, width, device=device)
    tensors = [x.requires_grad_(), *affine(width, x.dtype, device, count)]
    place, eps = ("norms", {"eps": 1e-5}) if count else (name, {})
    found = differentiate_twice(f"{place}.{name}", upstream, *tensors, **eps)
    leaves = [reference.double(one).requires_grad_() for one in tensors]
    wanted = penalised(formula(*leaves, *eps.values()), leaves, upstream.cpu())
    for one, should in zip(found, wanted, strict=True):
        assert_close(one, should)


def assert_same_bits(actual, expected) -> None:
    """Of numbers and scales; a NaN is one whatever its sign."""
    for one, other in zip(actual, expected, strict=True):
        one, other = one.cpu(), other.cpu()
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        wide, wanted = one.float(), other.float()
        assert torch.equal(wide.isnan(), wanted.isnan())
        real = ~wanted.isnan()
        assert torch.equal(wide[real].view(torch.int32), wanted[real].view(torch.int32))


@needs_triton
@pytest.mark.parametrize("encoding", FLOAT8, ids=short)
class TestQuantise:
    @pytest.fixture(autouse=True)
    def native(self, encoding) -> None:
        """A device converts to its own encoding; the interpreter to any."""
        if not interpreted():
            try:
                functional.quantise_rows(torch.ones(1, 1, device="cuda"), encoding, path="triton")
            except KernelRefused as refused:
                pytest.skip(str(refused))

    @dtypes
    @pytest.mark.parametrize("shape", [(1, 1), (70, 100), (3, 1000), (4, 5000), WIDE], ids=str)
    def test_bit_for_bit(self, device, encoding, dtype, shape):
        sizes = 10 ** torch.randn(shape[0], 1, device=device)
        x = (sizes * torch.randn(shape, device=device)).to(dtype)
        made = run("quantise.quantise_rows", x, encoding)
        assert_same_bits(made, reference.quantised(x, encoding))

    @pytest.mark.parametrize("seed", range(6))
    def test_seeds(self, device, encoding, seed):
        torch.manual_seed(seed)
        rows, width = int(torch.randint(1, 60, ())), int(torch.randint(1, 3000, ()))
        x = torch.randn(rows, width, device=device)
        made = run("quantise.quantise_rows", x, encoding)
        assert_same_bits(made, reference.quantised(x, encoding))

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
        q, scale = run("quantise.quantise_rows", x, encoding)
        assert_same_bits((q, scale), reference.quantised(x, encoding))
        assert (scale[0].item(), scale[2].item()) == (1.0, 2.0**126)
        assert (q[6].float() == torch.finfo(encoding).max).all()
        assert q[3].float().isnan().sum() == 1  # the rest is zero, not lost
        assert q[5].float().isnan().all()

    def test_strides_and_empty(self, device, encoding):
        x = torch.randn(300, 8, device=device)
        for one in (x.t(), x[::3, :7], x[:0], x[:, :0], x[:1].expand(5, 8)):
            made = run("quantise.quantise_rows", one, encoding)
            rows, width = one.shape
            if one.numel():
                assert_same_bits(made, reference.quantised(one, encoding))
            assert [tuple(part.shape) for part in made] == [(rows, width), (rows, 1)]
            assert (made[1] == 1).all() or one.numel()

    def test_only_e4m3_of_a_matrix(self, device, encoding):
        with pytest.raises(ValueError, match=r"e4m3 of a matrix is computed, not .* \(2, 3, 4\)"):
            run("quantise.quantise_rows", torch.ones(2, 3, 4, device=device), encoding)
        with pytest.raises(ValueError, match=r"not torch\.float8_e5m2 of"):
            run("quantise.quantise_rows", torch.ones(2, 3, device=device), torch.float8_e5m2)


@needs_triton
class TestQuantisedProduct:
    @dtypes
    def test_the_librarys_product_takes_it(self, device, dtype):
        native = functional.quantise_rows(torch.ones(1, 1, device=device)).data.dtype
        x, weight = (torch.randn(n, 70, device=device).to(dtype) for n in (33, 20))
        made = [
            FP8QuantizedTensor(*run("quantise.quantise_rows", one, native), one.dtype)
            for one in (x, weight)
        ]
        plain = [by_rows(one) for one in (x, weight)]
        for one, other in zip(made, plain, strict=True):
            assert_same_bits((one.data, one.scale), (other.data, other.scale))
        assert torch.equal(scaled_matmul(*made)[0], scaled_matmul(*plain)[0])


@needs_triton
class TestFarApart:
    """Rows that 2^31 numbers lie between: a place is counted in 64 bits."""

    @pytest.mark.parametrize("upstream", [False, True], ids=["forward", "backward"])
    @pytest.mark.parametrize("name", ["norms.rms_norm", "norms.layer_norm", "softmax.softmax"])
    def test_as_side_by_side(self, name, upstream):
        far, near = run_far_apart(name, upstream)
        assert torch.equal(far, near)

    def test_quantised(self):
        far, near = run_far_apart("quantise.quantise_rows")
        assert torch.equal(far, near)
