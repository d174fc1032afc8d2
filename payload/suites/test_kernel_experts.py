"""Experts with few tokens: the library's numbers, and Triton's on the device or interpreted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from suites import interpreter, kernel_reference
from suites.covering import pairwise
from suites.interpreter import needs_triton
from suites.numerics import assert_close, needs_cuda
from torchbridge.kernels import moe_experts

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ACTIVATIONS = list(kernel_reference.ACTIVATION)
SIZES = {"tokens": 33, "top_k": 2, "experts": 8, "width": 70, "hidden": 50}


class Case:
    """Tokens, routing and experts with random numbers."""

    def __init__(
        self, device, dtype=torch.float32, activation="silu", gated=False, biased=False, **how: Any
    ) -> None:
        sizes = {**SIZES, **how}
        count, width, hidden = sizes["experts"], sizes["width"], sizes["hidden"]

        def normal(*shape: int) -> Tensor:
            return (shape[-1] ** -0.5 * torch.randn(*shape, device=device)).to(dtype)

        self.gated, self.activation = gated, activation
        self.x = torch.randn(sizes["tokens"], width, device=device).to(dtype)
        ranks = torch.rand(sizes["tokens"], count, device=device)
        self.experts = ranks.topk(sizes["top_k"]).indices
        self.weights = torch.rand(self.experts.shape, device=device).to(dtype)
        self.up, self.down = (
            normal(count, hidden * (1 + gated), width),
            normal(count, width, hidden),
        )
        self.up_bias = normal(*self.up.shape[:2]) if biased else None
        self.down_bias = normal(*self.down.shape[:2]) if biased else None

    @property
    def given(self) -> tuple:
        """The arguments of the kernel, in order."""
        matrices = (self.up, self.down, self.up_bias, self.down_bias)
        return (self.x, self.experts, self.weights, *matrices, self.activation, self.gated)

    def check(self) -> Tensor:
        """Run the kernel, check its output against the reference, and return it."""
        interpreter.needs_products(self.x.dtype)
        output = interpreter.run("experts.in_triton", *self.given)
        assert output.dtype == self.x.dtype
        assert_close(output, kernel_reference.moe_experts(*self.given))
        return output


class TestLibrary:
    @pytest.mark.parametrize(
        ("activation", "gated", "tokens"), pairwise(ACTIVATIONS, [False, True], [1, 33])
    )
    def test_numbers(self, device, activation, gated, tokens):
        case = Case(device, activation=activation, gated=gated, biased=True, tokens=tokens)
        assert_close(moe_experts(*case.given), kernel_reference.moe_experts(*case.given))

    def test_gradients(self, device):
        """The gradients equal differences that move each weight a little, in float64."""
        double = {"dtype": torch.float64, "device": device, "requires_grad": True}
        x, weights = torch.randn(4, 3, **double), torch.rand(4, 2, **double)
        up, down = torch.randn(3, 4, 3, **double), torch.randn(3, 3, 2, **double)
        experts = torch.tensor([[0, 2], [2, 0], [0, 2], [2, 2]], device=device)  # 1 has no token

        def function(x, weights, up, down):
            return moe_experts(x, experts, weights, up, down, None, None, "gelu", True)

        assert torch.autograd.gradcheck(function, (x, weights, up, down))

    def test_an_expert_that_there_is_not(self, device):
        case = Case(device, tokens=2, top_k=1, experts=2)
        case.experts = torch.tensor([[0], [2]], device=device)
        with pytest.raises(IndexError, match=r"experts go from 0 to 1, got \[0, 2\]"):
            moe_experts(*case.given, path="torch")


@needs_triton
class TestTriton:
    @pytest.mark.parametrize(
        ("dtype", "activation", "gated", "tokens", "biased"),
        pairwise(DTYPES, ACTIVATIONS, [False, True], [1, 9, 64], [False, True]),
    )
    def test_numbers(self, device, dtype, activation, gated, tokens, biased):
        Case(device, dtype, activation, gated, biased, tokens=tokens).check()

    @pytest.mark.parametrize(("top_k", "experts"), [(1, 1), (1, 3), (3, 3), (4, 70), (2, 1100)])
    def test_choices(self, device, top_k, experts):
        Case(device, top_k=top_k, experts=experts, tokens=13).check()

    def test_odd_routings(self, device):
        case = Case(device, tokens=40, top_k=1, experts=5)
        case.experts[:] = 3  # all tokens on one expert, the others empty
        case.check()
        case = Case(device, tokens=6)
        case.experts[:] = case.experts[:, :1]  # each token has one expert twice
        case.check()
        wide = {"top_k": 1, "experts": 2, "width": 65, "hidden": 129}
        Case(device, torch.float16, tokens=70, **wide).check()  # takes the wider tiles
        case = Case(device, tokens=0)
        assert interpreter.run("experts.in_triton", *case.given).shape == (0, 70)

    def test_strides_and_order_change_nothing(self, device):
        case = Case(device, biased=True)
        expected = case.check()
        case.x = case.x.T.contiguous().T
        case.experts = case.experts.T.contiguous().T
        case.weights = torch.stack([case.weights, case.weights], dim=-1)[..., 0]
        case.up = case.up.transpose(1, 2).contiguous().transpose(1, 2)
        assert torch.equal(case.check(), expected)
        order = torch.randperm(len(case.x), device=device)
        case.x, case.experts, case.weights = (
            one[order] for one in (case.x, case.experts, case.weights)
        )
        assert_close(case.check(), expected[order], 1e-6)

    @pytest.mark.parametrize("unknown", [-1, -2, 2**40])
    def test_an_expert_that_there_is_not_gives_nan_for_its_token_alone(self, device, unknown):
        case = Case(device, tokens=5)
        expected = kernel_reference.moe_experts(*case.given)
        case.experts[1, 0], case.experts[4, 1] = 8, unknown
        output = interpreter.run("experts.in_triton", *case.given)
        assert output.isnan().any(1).tolist() == [False, True, False, False, True]
        assert_close(output[[0, 2, 3]], expected[[0, 2, 3]])

    def test_inputs_are_checked(self, device):
        from torchbridge.kernels.experts import in_triton

        case = Case(device, tokens=3)
        given, short = list(case.given), case.up[:, :1, 0]
        wrongs = [
            (place, given[place].to("meta"), rf"{name} must be .* on meta")
            for place, name in enumerate(("experts", "weights", "up", "down"), 1)
        ]
        wrongs += [
            (7, "tanh", "got 'tanh'"),
            (8, True, r"up must be \(8, 100, 70\).*, got \(8, 50, 70\)"),
            (2, case.weights[:, :1], r"weights must be \(3, 2\).*, got \(3, 1\)"),
            (5, short, r"up_bias must be \(8, 50\).*, got \(8, 1\)"),
            (6, short, r"down_bias must be \(8, 70\).*, got \(8, 1\)"),
            (0, case.x.double(), "one 16 or 32 bit float type"),
        ]
        for place, value, reason in wrongs:
            with pytest.raises(ValueError, match=reason):
                in_triton(*given[:place], value, *given[place + 1 :])
        with pytest.raises(RuntimeError, match="moe_experts has no backward"):
            in_triton(case.x.requires_grad_(), *given[1:])

    @needs_cuda()
    def test_a_cuda_graph_holds_it_for_any_routing(self, device):
        from torchbridge.kernels.experts import in_triton

        case, other = (Case(device, torch.bfloat16, tokens=64) for _ in range(2))
        in_triton(*case.given)  # compiles
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = in_triton(*case.given)
        case.experts.copy_(other.experts)
        graph.replay()
        assert_close(output, kernel_reference.moe_experts(*case.given))


@needs_triton
class TestIndex:
    @pytest.mark.parametrize(
        ("tokens", "top_k", "experts", "block"),
        [(1, 2, 8, 16), (130, 2, 5, 64), (130, 2, 5, 16), (7, 8, 300, 16), (90, 3, 1500, 64)],
    )
    def test_every_assignment_is_in_one_block_of_its_expert(
        self, device, tokens, top_k, experts, block
    ):
        from torchbridge.kernels.experts import most_blocks

        chosen = torch.rand(tokens, experts, device=device).topk(top_k).indices
        order, blocks = interpreter.run("experts.expert_index", chosen, experts, block)
        flat = chosen.reshape(-1)
        assert torch.equal(order.long(), flat.argsort(stable=True))
        assert blocks.shape == (3, most_blocks(tokens * top_k, experts, block))
        met = []
        for expert, first, last in blocks.T.tolist():
            assert 0 <= last - first <= block
            met += range(first, last)
            assert (flat[order[first:last].long()] == expert).all()
        assert sorted(met) == list(range(tokens * top_k))

    @pytest.mark.parametrize("unknown", [-1, 5, 2**40])
    def test_an_expert_that_there_is_not_is_in_no_block(self, device, unknown):
        """An expert that does not exist is in no block.

        Each place is used exactly once, so nothing is written outside the blocks.
        """
        chosen = torch.tensor([[0, 1], [2, unknown], [3, 4]], device=device)
        order, blocks = interpreter.run("experts.expert_index", chosen, 5, 16)
        assert order.tolist() == [0, 1, 2, 4, 5, 3]
        listed = [(e, last - first) for e, first, last in blocks.T.tolist() if last > first]
        assert sorted(listed) == [(expert, 1) for expert in range(5)]

    @pytest.mark.parametrize("block", [16, 64])
    def test_the_worst_routing_fills_the_list(self, device, block):
        """The list of blocks is full if each expert has one row more than whole blocks."""
        from torchbridge.kernels.experts import most_blocks

        counts = [1, 1, 1, block + 1]
        chosen = torch.repeat_interleave(torch.arange(4), torch.tensor(counts)).to(device)
        _, blocks = interpreter.run("experts.expert_index", chosen[:, None], 4, block)
        used = int((blocks[2] > blocks[1]).sum())
        assert used == 5 == most_blocks(sum(counts), 4, block)
