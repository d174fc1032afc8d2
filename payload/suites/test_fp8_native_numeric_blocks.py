"""Products with 128-block scales, sums of fewer bits, the kept weight, row kernels."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from suites import fp8_reference as ref
from suites.covering import pairwise
from suites.fp8_fakes import ScalingType, install
from suites.numerics import assert_close, rms_error
from torchbridge import fp8
from torchbridge.float8 import native_dtype
from torchbridge.fp8 import FP8Dtype, FP8QuantizedTensor, Granularity, NativeFP8Linear
from torchbridge.fp8.matmul import BLOCK_SCALES, WHOLE_SCALES, Path, _by_kernel, find_path

pytestmark = pytest.mark.usefixtures("in_float8")

E4M3, E5M2 = FP8Dtype
CPU = torch.device("cpu")
SHAPES = [(1, 129, 1), (20, 528, 144), (33, 260, 65), (64, 512, 128), (130, 1100, 300)]  # M, K, N
ROWS, TILES = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
CODES = (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float32)


def operands(m: int, k: int, n: int, of_b: Granularity):
    """Return [m, k] and [n, k] whose blocks differ in magnitude, plain and quantised."""
    a = torch.randn(m, k) * torch.logspace(-2, 2, k)
    b = torch.randn(n, k) * torch.logspace(2, -1, k) * torch.logspace(0, 2, n)[:, None]
    left = FP8QuantizedTensor.from_tensor(a, granularity=Granularity.BLOCK)
    return a, b, left, FP8QuantizedTensor.from_tensor(b, granularity=of_b)


class TestOneCall:
    @pytest.mark.parametrize(
        ("of_b", "shape"), pairwise([Granularity.TILE, Granularity.BLOCK], SHAPES), ids=str
    )
    def test_against_double(self, monkeypatch, shape, of_b):
        fake = install(monkeypatch)
        a, b, left, right = operands(*shape, of_b)
        out = _by_kernel(left, right, Path("scaled_mm", None, BLOCK_SCALES))
        near = left.data.dtype
        of_rows, of_tiles = (1, 128), (128, 128)
        wanted = ref.snapped(a, near, of_rows)
        wanted = wanted @ ref.snapped(b, near, of_tiles if of_b is Granularity.TILE else of_rows).T
        assert_close(out, wanted, 1e-6)
        assert len(fake.calls) == 1
        tiles = TILES if of_b is Granularity.TILE and shape[2] > 1 else ROWS
        assert fake.calls[0]["kinds"] == (ROWS, tiles)

    def test_it_is_found_and_split_else(self, monkeypatch):
        fake = install(monkeypatch)
        found = find_path(CPU, *CODES, single=False, heights=(1, 128))
        assert (found.kernel, found.splits, found.fallback) == (BLOCK_SCALES, None, None)
        left, right = operands(8, 300, 140, Granularity.TILE)[2:]
        fake.calls.clear()
        assert fp8.scaled_matmul(left, right)[1] == found
        assert [one["sizes"] for one in fake.calls] == [(16, 512, 256)]
        install(monkeypatch, ignores_blocks=True)
        wrong = find_path(CPU, *CODES, single=False, heights=(1, 128))
        assert wrong.kernel == WHOLE_SCALES
        assert wrong.splits == f"{BLOCK_SCALES} computes wrong numbers"
        assert wrong.fallback is None

    def test_a_call_per_block_says_why(self, monkeypatch):
        fake = install(monkeypatch, blocks=False)
        a, b, left, right = operands(20, 528, 144, Granularity.TILE)
        path = find_path(CPU, torch.float8_e5m2, *CODES[1:], single=False, heights=(1, 128))
        assert path.splits.startswith(f"{BLOCK_SCALES} does not run (Invalid scaling")
        fake.calls.clear()
        out = _by_kernel(left, right, Path("scaled_mm", None, WHOLE_SCALES))
        assert len(fake.calls) == 5
        assert_close(out, ref.forward(a, b, left.data.dtype, "block"), 1e-6)

    def test_the_layer_s_three_products(self, monkeypatch):
        fake = install(monkeypatch)
        layer = NativeFP8Linear(300, 260, granularity="block", bias=False)
        x = torch.randn(150, 300, requires_grad=True)
        ref.assert_gradients(layer, x, torch.randn(150, 260))
        last = [one["kinds"] for one in fake.calls[-3:]]
        assert last == [(ROWS, TILES), (ROWS, TILES), (ROWS, ROWS)]
        assert [one["sizes"] for one in fake.calls[-3:]] == [
            (160, 512, 384),
            (160, 512, 384),
            (272, 512, 304),
        ]
        assert {one.splits for one in layer.paths.values()} == {None}
        ref.assert_forward(layer, x)

    def test_plan_and_product_agree(self, monkeypatch):
        install(monkeypatch)
        for inner, columns in ((128, 300), (300, 1), (300, 128), (129, 129)):
            layer = NativeFP8Linear(inner, columns, granularity="block")
            x = torch.randn(7, inner)
            left, right = layer.quantize("input", x), layer.quantized_weight()
            layer(x)
            assert fp8.scaled_matmul(left, right, fast_accum=True)[1] == layer.paths["forward"]

    def test_real_kernel(self, device):
        dtype = native_dtype(E4M3, device)
        path = find_path(device, dtype, dtype, torch.bfloat16, single=False, heights=(1, 128))
        if path.fallback or path.splits:
            pytest.skip(f"no kernel for 128-block scales: {path.fallback or path.splits}")
        a, b, *_ = operands(256, 1024, 384, Granularity.TILE)
        left = FP8QuantizedTensor.from_tensor(a.to(device), granularity=Granularity.BLOCK)
        right = FP8QuantizedTensor.from_tensor(b.to(device), granularity=Granularity.TILE)
        out, taken = fp8.scaled_matmul(left, right, out_dtype=torch.bfloat16)
        assert taken.kernel.endswith("by blocks")
        assert_close(out.float(), ref.forward(a, b, dtype, "block"), 8e-3)


class TestFastSums:
    @pytest.mark.parametrize("granularity", ["tensor", "row"])
    @pytest.mark.parametrize("fast", [True, False])
    def test_forward_alone(self, monkeypatch, granularity, fast):
        fake = install(monkeypatch)
        layer = NativeFP8Linear(64, 32, granularity=granularity, fast_accum=fast)
        layer(torch.randn(16, 64, requires_grad=True)).sum().backward()
        assert [one["fast"] for one in fake.calls[-3:]] == [fast, False, False]
        assert [one.fast_accum for one in layer.paths.values()] == [fast, False, False]

    def test_a_kernel_that_cannot(self, monkeypatch):
        fake = install(monkeypatch)
        product = fake.product

        def refuse(*of):
            if of[-2]:  # fast
                raise RuntimeError("no fast accumulation")
            return product(*of)

        fake.product = refuse
        found = find_path(CPU, *CODES, single=True, fast_accum=True)
        assert (found.name, found.fast_accum) == ("scaled_mm", False)


class TestKeptWeight:
    def counted(self, layer):
        """Return a function that counts how often the layer quantises its weight from now on."""
        quantize, counts = layer.quantize, []

        def counting(role, matrix):
            counts.append(role)
            return quantize(role, matrix)

        layer.quantize = counting
        return lambda: counts.count("weight")

    @pytest.mark.parametrize("granularity", ["tensor", "row", "block"])
    def test_once_in_eval(self, device, granularity):
        layer = NativeFP8Linear(64, 32, granularity=granularity, device=device).eval()
        times, x = self.counted(layer), torch.randn(8, 64, device=device)
        with torch.inference_mode():
            first = layer(x)
        for _ in range(3):
            assert torch.equal(layer(x), first)
        assert times() == 1
        layer(x.requires_grad_()).sum().backward()  # tensors made in inference mode allow gradients
        assert x.grad.abs().max() > 0
        before = times()
        layer.train()
        for _ in range(3):
            layer(x)
        assert times() == before + 3

    def test_every_change_is_seen(self, device):
        layer = NativeFP8Linear(64, 32, device=device).eval()
        x = torch.randn(8, 64, device=device)
        changes = (
            lambda: nn.init.normal_(layer.weight),
            lambda: layer.load_state_dict(nn.Linear(64, 32, device=device).state_dict()),
            lambda: setattr(layer, "weight", nn.Parameter(torch.randn(32, 64, device=device))),
            lambda: setattr(layer, "granularity", "row"),
            lambda: layer.to(torch.float64).to(torch.float32).weight.data.mul_(2.0),
            lambda: torch.optim.SGD(layer.parameters(), lr=1.0).step(
                lambda: layer(x).square().sum().backward()
            ),
        )
        ref.assert_forward(layer, x)
        for change in changes:
            change()
            ref.assert_forward(layer, x)

    def test_copies_keep_their_own(self, device):
        layer = NativeFP8Linear(64, 32, device=device).eval()
        x = torch.randn(8, 64, device=device)
        layer(x)
        other = copy.deepcopy(layer)
        nn.init.normal_(other.weight)
        ref.assert_forward(other, x)
        ref.assert_forward(layer, x)

    def test_histories_decide_anew(self, device):
        config = fp8.FP8Config(scaling="delayed", margin=0, amax_history_len=2)
        layer = fp8.FP8LinearLayer(64, 32, config=config, device=device)
        x = torch.randn(8, 64, device=device)
        layer(x)
        layer.eval()
        before = layer(x)
        layer.histories["weight"].amax.fill_(layer.weight.abs().max().item() / 64)  # saturates
        assert rms_error(layer(x), before) > 0.5


class TestRowsOfTheRegistry:
    def test_only_rows_and_not_while_tracing(self, device, monkeypatch):
        from torchbridge.fp8 import linear

        taken, kernel = [], linear.quantise_rows
        counting = lambda x, dtype: taken.append(dtype) or kernel(x, dtype)  # noqa: E731
        monkeypatch.setattr(linear, "quantise_rows", counting)
        x = torch.randn(8, 64, device=device, requires_grad=True)
        for granularity, wanted in (("tensor", 0), ("block", 0), ("row", 5)):
            taken.clear()
            layer = NativeFP8Linear(64, 32, granularity=granularity, device=device)
            layer(x).sum().backward()  # input and weight; the gradient; three of them transposed
            assert len(taken) == (wanted + 1 if granularity == "row" else 0)
        taken.clear()
        torch.compile(layer, backend="eager", fullgraph=True)(x)
        layer.margin = 1.0  # no kernel has a margin
        layer(x.detach())
        assert not taken
