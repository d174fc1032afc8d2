"""Gated linear and experts in Triton: numbers against float64, on the device or interpreted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from suites import interpreter, matrix_reference
from suites.interpreter import needs_triton
from suites.numerics import assert_close, needs_cuda
from suites.specimens import all_specimens

pytestmark = needs_triton
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu"]
# rows, depth, columns: one of each; none a multiple of a tile; tiles for few, some and many rows
SIZES = [(1, 1, 1), (1, 70, 45), (16, 64, 64), (33, 100, 45), (65, 33, 70), (130, 17, 129)]


def short(dtype: torch.dtype) -> str:
    """float32"""
    return str(dtype).removeprefix("torch.")


def needs_products(dtype: torch.dtype) -> None:
    """Skip what the interpreter multiplies wrongly."""
    if dtype == torch.bfloat16 and interpreter.interpreted():
        pytest.skip("Triton's interpreter multiplies bfloat16 matrices wrongly; needs a device")


def normal(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    """Normal numbers, a matrix's divided by the square root of its depth."""
    scale = shape[-1] ** -0.5 if len(shape) > 1 else 1.0
    return (scale * torch.randn(*shape, device=device)).to(dtype)


class TestGatedLinear:
    @pytest.mark.parametrize("dtype", DTYPES, ids=short)
    @pytest.mark.parametrize("size", SIZES, ids=str)
    def test_odd_shapes(self, device, dtype, size):
        needs_products(dtype)
        rows, depth, columns = size
        x = torch.randn(rows, depth, device=device).to(dtype)
        gate, up = (normal(device, dtype, columns, depth) for _ in range(2))
        output = interpreter.run("gated_linear.gated_linear", x, gate, up)
        assert (output.shape, output.dtype) == ((rows, columns), dtype)
        inputs = matrix_reference.leaves(x, gate, up, None)
        assert_close(output, matrix_reference.gated_linear(*inputs, "silu"))

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_gradients(self, device, seed, activation):
        torch.manual_seed(seed)
        x = torch.randn(3, 7, 40, device=device, requires_grad=True)
        gate, up = (normal(device, torch.float32, 19, 40).requires_grad_() for _ in range(2))
        upstream = torch.randn(3, 7, 19, device=device)
        given = (x, gate, up, None, activation)
        output, actual = interpreter.differentiate("gated_linear.gated_linear", upstream, *given)
        inputs = matrix_reference.leaves(x, gate, up, None)
        expected = matrix_reference.gated_linear(*inputs, activation)
        assert_close(output, expected)
        wanted = matrix_reference.gradients(expected, inputs, upstream)
        assert len(actual) == len(wanted) == 3
        for one, should in zip(actual, wanted, strict=True):
            assert_close(one, should)

    @pytest.mark.parametrize("dtype", DTYPES, ids=short)
    @pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
    def test_without_a_gate(self, device, dtype, biased):
        needs_products(dtype)
        x = torch.randn(21, 40, device=device).to(dtype).requires_grad_()
        weight = normal(device, dtype, 19, 40).requires_grad_()
        bias = torch.randn(19, device=device).to(dtype).requires_grad_() if biased else None
        upstream = torch.randn(21, 19, device=device).to(dtype)
        given = (x, weight, None, bias, "gelu")
        output, actual = interpreter.differentiate("gated_linear.gated_linear", upstream, *given)
        inputs = matrix_reference.leaves(x, weight, None, bias)
        expected = matrix_reference.gated_linear(*inputs, "gelu")
        assert_close(output, expected)
        wanted = matrix_reference.gradients(expected, inputs, upstream)
        for one, should in zip(actual, wanted, strict=True):
            assert_close(one, should)

    @pytest.mark.parametrize("form", ["gated", "one matrix twice", "bias"])
    def test_second_derivatives(self, device, form):
        x = torch.randn(3, 7, 40, device=device, requires_grad=True)
        gate, up = (normal(device, torch.float32, 19, 40).requires_grad_() for _ in range(2))
        up = {"gated": up, "one matrix twice": gate, "bias": None}[form]
        bias = torch.randn(19, device=device, requires_grad=True) if form == "bias" else None
        upstream = torch.randn(3, 7, 19, device=device)
        given = (x, gate, up, bias, "silu")
        found = interpreter.differentiate_twice("gated_linear.gated_linear", upstream, *given)
        inputs = matrix_reference.leaves(x, gate, up, bias)
        inputs[2] = inputs[1] if up is gate else inputs[2]
        output = matrix_reference.gated_linear(*inputs, "silu")
        leaves = [one for one in inputs if one is not None]
        wanted = interpreter.penalised(output, leaves, upstream.cpu())
        for one, should in zip(found, wanted, strict=True):
            assert_close(one, should)

    def test_strides_change_nothing(self, device):
        x = torch.randn(48, 30, device=device)
        gate, up = (normal(device, torch.float32, 20, 48) for _ in range(2))
        one = interpreter.run("gated_linear.gated_linear", x.T, gate, up)
        other = interpreter.run("gated_linear.gated_linear", x.T.contiguous(), gate, up)
        wide = torch.cat([gate, up], dim=1)  # rows that lie apart
        third = interpreter.run("gated_linear.gated_linear", x.T, wide[:, :48], wide[:, 48:])
        assert torch.equal(one, other)
        assert torch.equal(one, third)
        inputs = matrix_reference.leaves(x.T, gate, up, None)
        assert_close(one, matrix_reference.gated_linear(*inputs, "silu"))
        apart, given = wide[:, :40:2].T[:20, 0], ("gated_linear.gated_linear", x.T, gate, None)
        biased = (interpreter.run(*given, bias) for bias in (apart, apart.clone()))
        assert torch.equal(*biased)

    def test_no_rows(self, device):
        x, gate = torch.randn(0, 8, device=device), torch.randn(5, 8, device=device)
        assert interpreter.run("gated_linear.gated_linear", x, gate, gate).shape == (0, 5)

    def test_nan_stays_in_its_row(self, device):
        x = torch.randn(20, 16, device=device)
        x[3, 5] = float("nan")
        gate = normal(device, torch.float32, 9, 16)
        for activation in ACTIVATIONS:
            output = interpreter.run("gated_linear.gated_linear", x, gate, None, None, activation)
            assert output.isnan().all(1).tolist() == [row == 3 for row in range(20)]

    def test_inputs_are_checked(self, device):
        from torchbridge.kernels.gpu.gated_linear import gated_linear

        x, gate = torch.randn(2, 8, device=device), torch.randn(5, 8, device=device)
        with pytest.raises(ValueError, match="got 'tanh'"):
            gated_linear(x, gate, gate, activation="tanh")
        with pytest.raises(ValueError, match="a bias is for the form without `up`"):
            gated_linear(x, gate, gate, gate[:, 0])
        with pytest.raises(ValueError, match=r"\(2, 8\) on .*, \(4, 8\) on .* do not go"):
            gated_linear(x, gate, gate[:4])
        with pytest.raises(ValueError, match="dtypes must be one"):
            gated_linear(x, gate.half())
        for bias in (gate[:1, 0], gate[:4, 0], gate[:, :1]):
            with pytest.raises(ValueError, match=r"\(5, 8\) on .* do not go together"):
                gated_linear(x, gate, None, bias)
        with pytest.raises(ValueError, match=r"\(2, 8\) on .*, \(5, 8\) on meta"):
            gated_linear(x, gate.to("meta"))


class Case:
    """Tokens, routing and experts, drawn from a seed."""

    def __init__(self, device, dtype=torch.float32, seed=0, **how: Any) -> None:
        sizes = {"tokens": 33, "top_k": 2, "experts": 8, "width": 70, "hidden": 50, **how}
        torch.manual_seed(seed)
        count, width, hidden = sizes["experts"], sizes["width"], sizes["hidden"]
        self.gated, self.activation = sizes.get("gated", False), sizes.get("activation", "silu")
        self.x = torch.randn(sizes["tokens"], width, device=device).to(dtype)
        ranks = torch.rand(sizes["tokens"], count, device=device)
        self.experts = ranks.topk(sizes["top_k"]).indices
        self.weights = torch.rand(self.experts.shape, device=device).to(dtype)
        self.up = normal(device, dtype, count, hidden * (1 + self.gated), width)
        self.down = normal(device, dtype, count, width, hidden)
        biased = sizes.get("biased", False)
        self.up_bias = normal(device, dtype, *self.up.shape[:2]) if biased else None
        self.down_bias = normal(device, dtype, *self.down.shape[:2]) if biased else None

    @property
    def given(self) -> tuple:
        """The arguments, in order."""
        matrices = (self.up, self.down, self.up_bias, self.down_bias)
        return (self.x, self.experts, self.weights, *matrices, self.activation, self.gated)

    def check(self) -> Tensor:
        """The kernel's output, compared."""
        output = interpreter.run("moe.moe_experts", *self.given)
        assert output.dtype == self.x.dtype
        assert_close(output, matrix_reference.moe_experts(*self.given))
        return output


class TestExperts:
    @pytest.mark.parametrize("dtype", DTYPES, ids=short)
    @pytest.mark.parametrize("tokens", [1, 33, 64])
    @pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
    def test_numbers(self, device, dtype, tokens, gated):
        needs_products(dtype)
        Case(device, dtype, tokens=tokens, gated=gated, biased=True).check()

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_seeds(self, device, seed, activation):
        Case(device, seed=seed, activation=activation, tokens=9, gated=seed % 2 == 1).check()

    @pytest.mark.parametrize(("top_k", "experts"), [(1, 1), (1, 3), (3, 3), (4, 70), (2, 1100)])
    def test_choices(self, device, top_k, experts):
        Case(device, top_k=top_k, experts=experts, tokens=13).check()

    def test_all_tokens_on_one_expert_and_the_others_empty(self, device):
        case = Case(device, tokens=40, top_k=1, experts=5)
        case.experts[:] = 3
        case.check()

    def test_an_expert_twice_for_a_token(self, device):
        case = Case(device, tokens=6)
        case.experts[:] = case.experts[:, :1]
        case.check()

    def test_many_rows_take_the_wider_tiles(self, device):
        Case(device, torch.float16, tokens=70, top_k=1, experts=2, width=65, hidden=129).check()

    def test_strides_change_nothing(self, device):
        case = Case(device)
        expected = case.check()
        case.x = case.x.T.contiguous().T
        case.experts = case.experts.T.contiguous().T
        case.weights = torch.stack([case.weights, case.weights], dim=-1)[..., 0]
        case.up = case.up.transpose(1, 2).contiguous().transpose(1, 2)
        assert torch.equal(case.check(), expected)

    def test_two_calls_are_equal_and_tokens_do_not_meet(self, device):
        case = Case(device, biased=True)
        first = case.check()
        assert torch.equal(case.check(), first)
        order = torch.randperm(len(case.x), device=device)
        case.x, case.experts, case.weights = (
            one[order] for one in (case.x, case.experts, case.weights)
        )
        assert_close(case.check(), first[order], 1e-6)

    @pytest.mark.parametrize("unknown", [-1, -2, 2**40])
    def test_an_expert_that_there_is_not_gives_nan_for_its_token_alone(self, device, unknown):
        case = Case(device, tokens=5)
        expected = matrix_reference.moe_experts(*case.given)
        case.experts[1, 0], case.experts[4, 1] = 8, unknown
        output = interpreter.run("moe.moe_experts", *case.given)
        assert output.isnan().any(1).tolist() == [False, True, False, False, True]
        assert_close(output[[0, 2, 3]], expected[[0, 2, 3]])

    def test_no_tokens(self, device):
        case = Case(device, tokens=0)
        assert interpreter.run("moe.moe_experts", *case.given).shape == (0, 70)

    def test_inputs_are_checked(self, device):
        from torchbridge.kernels.gpu.moe import moe_experts

        case = Case(device, tokens=3)
        given = list(case.given)
        with pytest.raises(ValueError, match="got 'tanh'"):
            moe_experts(*given[:-2], "tanh")
        with pytest.raises(ValueError, match=r"up must be \(8, 100, 70\).*, got \(8, 50, 70\)"):
            moe_experts(*given[:-1], True)
        for place, name in enumerate(("experts", "weights", "up", "down"), 1):
            wrong = [*given[:place], given[place].to("meta"), *given[place + 1 :]]
            with pytest.raises(ValueError, match=f"{name} must be .* on meta"):
                moe_experts(*wrong)
        with pytest.raises(ValueError, match=r"weights must be \(3, 2\).*, got \(3, 1\)"):
            moe_experts(*given[:2], case.weights[:, :1], *given[3:])
        for place, name in ((5, "up_bias"), (6, "down_bias")):
            wrong = [*given[:place], case.up[:, :1, 0], *given[place + 1 :]]
            with pytest.raises(ValueError, match=rf"{name} must be \(8, [57]0\).*, got \(8, 1\)"):
                moe_experts(*wrong)
        with pytest.raises(ValueError, match="one 16 or 32 bit float type"):
            moe_experts(case.x.double(), *given[1:])
        with pytest.raises(RuntimeError, match="moe_experts has no backward"):
            moe_experts(case.x.requires_grad_(), *given[1:])

    @needs_cuda()
    def test_a_cuda_graph_holds_it_for_any_routing(self, device):
        from torchbridge.kernels.gpu.moe import moe_experts

        case, other = (Case(device, torch.bfloat16, seed, tokens=64) for seed in (0, 1))
        moe_experts(*case.given)  # compiles
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = moe_experts(*case.given)
        case.experts.copy_(other.experts)
        graph.replay()
        assert_close(output, matrix_reference.moe_experts(*case.given))


class TestIndex:
    @pytest.mark.parametrize("block", [16, 64])
    @pytest.mark.parametrize(
        ("tokens", "top_k", "experts"), [(1, 2, 8), (130, 2, 5), (7, 8, 300), (90, 3, 1500)]
    )
    def test_every_assignment_is_in_one_block_of_its_expert(
        self, device, tokens, top_k, experts, block
    ):
        from torchbridge.kernels.gpu.moe import most_blocks

        chosen = torch.rand(tokens, experts, device=device).topk(top_k).indices
        order, blocks = interpreter.run("moe.expert_index", chosen, experts, block)
        flat = chosen.reshape(-1)
        assert torch.equal(order.long(), flat.argsort(stable=True))
        assert blocks.shape == (3, most_blocks(tokens * top_k, experts, block))
        met = []
        for expert, first, last in blocks.T.tolist():
            assert 0 <= last - first <= block
            met += range(first, last)
            assert (flat[order[first:last].long()] == expert).all()
        assert sorted(met) == list(range(tokens * top_k))

    @pytest.mark.parametrize("unknown", [-1, -2, 5, 2**40])
    def test_an_expert_that_there_is_not_is_in_no_block(self, device, unknown):
        """All places are taken once, so nothing was written outside of them."""
        chosen = torch.tensor([[0, 1], [2, unknown], [3, 4]], device=device)
        order, blocks = interpreter.run("moe.expert_index", chosen, 5, 16)
        assert order.tolist() == [0, 1, 2, 4, 5, 3]
        listed = [(e, last - first) for e, first, last in blocks.T.tolist() if last > first]
        assert sorted(listed) == [(expert, 1) for expert in range(5)]

    @pytest.mark.parametrize("block", [16, 64])
    def test_the_worst_routing_fills_the_list(self, device, block):
        """All experts but one have one row more than fills their blocks."""
        from torchbridge.kernels.gpu.moe import most_blocks

        counts = [1, 1, 1, block + 1]
        chosen = torch.repeat_interleave(torch.arange(4), torch.tensor(counts)).to(device)
        _, blocks = interpreter.run("moe.expert_index", chosen[:, None], 4, block)
        used = int((blocks[2] > blocks[1]).sum())
        assert used == 5 == most_blocks(sum(counts), 4, block)


class TestTables:
    @pytest.mark.parametrize("dtype", DTYPES, ids=short)
    @pytest.mark.parametrize("target", ["sm_86", "sm_90", "gfx942", "sm_120", ""])
    def test_tiles_are_of_the_rows_and_specimens(self, dtype, target):
        from torchbridge.kernels.gpu import gated_linear, moe
        from torchbridge.kernels.gpu.tiles import candidates

        for module in (gated_linear, moe):
            name = module.__name__.rpartition(".")[2]
            compiled = {
                (one.constexprs["block_m"], one.constexprs["block_n"], one.num_warps)
                for one in all_specimens()[name]
                if "block_k" in one.constexprs
            }
            for rows in (1, 16, 17, 64, 65, 5000):
                found = candidates(module.TABLE, target, dtype, rows)
                assert {(one.m, one.n, one.warps) for one in found} <= compiled
                assert all(one.bits == dtype.itemsize * 8 for one in found)
                assert all(one.m == 16 for one in found) == (rows <= 16)
                assert len(found) == 1 or rows > 64  # nothing to measure, in a CUDA graph say

    def test_what_needs_room_stays_where_there_is_room(self):
        from torchbridge.kernels.gpu.gated_linear import TABLE
        from torchbridge.kernels.gpu.tiles import candidates

        small, large = (candidates(TABLE, t, torch.bfloat16, 999) for t in ("sm_86", "sm_90"))
        assert (small[0].stages, large[0].stages) == (3, 4)

    def test_no_tiles_for_float64(self):
        from torchbridge.kernels.gpu.moe import pick_tiles

        with pytest.raises(ValueError, match=r"no tiles for 2 rows of torch.float64 on sm_90"):
            pick_tiles("sm_90", torch.float64, 16, 8)
