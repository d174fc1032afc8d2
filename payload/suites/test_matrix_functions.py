"""Gated linear and experts by name: the library's ways, and which way is taken where."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites import matrix_reference
from suites.numerics import assert_close
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, KernelRefused, Request, functional
from torchbridge.kernels.matrices import rows_variant

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def matrix(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    """A parameter: normal numbers over the square root of its depth."""
    return (torch.randn(*shape, device=device) / shape[-1] ** 0.5).to(dtype).requires_grad_()


def compare(output: Tensor, expected: Tensor, inputs: list, references: list) -> None:
    """A result and the gradients of its inputs against those of a float64 formula."""
    assert output.dtype == inputs[0].dtype
    assert_close(output, expected)
    upstream = torch.linspace(-1, 1, output.numel(), device=output.device).reshape(output.shape)
    actual = torch.autograd.grad(output, inputs, upstream.to(output))
    wanted = matrix_reference.gradients(expected, references, upstream)
    for one, should in zip(actual, wanted, strict=True):
        assert_close(one, should, 2e-5 if one.dtype == torch.float32 else None)


class TestLibrary:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("activation", matrix_reference.ACTIVATION)
    @pytest.mark.parametrize("form", ["gated", "bias", "plain"])
    def test_gated_linear(self, device, dtype, activation, form):
        x = torch.randn(3, 7, 20, device=device).to(dtype).requires_grad_()
        gate = matrix(device, dtype, 11, 20)
        up = matrix(device, dtype, 11, 20) if form == "gated" else None
        bias = matrix(device, dtype, 11) if form == "bias" else None
        references = matrix_reference.leaves(x, gate, up, bias)
        expected = matrix_reference.gated_linear(*references, activation)
        output = functional.gated_linear(x, gate, up, bias, activation)
        given = [one for one in (x, gate, up, bias) if one is not None]
        compare(output, expected, given, references)

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
    @pytest.mark.parametrize("tokens", [1, 33])
    def test_moe_experts(self, device, seed, gated, tokens):
        torch.manual_seed(seed)
        x = torch.randn(tokens, 20, device=device)
        experts = torch.rand(tokens, 5, device=device).topk(2).indices
        weights = torch.rand(tokens, 2, device=device)
        up, down = (
            matrix(device, x.dtype, 5, 12 * (1 + gated), 20),
            matrix(device, x.dtype, 5, 20, 12),
        )
        biases = matrix(device, x.dtype, *up.shape[:2]), matrix(device, x.dtype, *down.shape[:2])
        given = (x, experts, weights, up, down, *biases, "silu", gated)
        assert_close(functional.moe_experts(*given), matrix_reference.moe_experts(*given))

    def test_moe_experts_learn(self, device):
        """By moving each weight a little, in float64."""
        double = {"dtype": torch.float64, "device": device, "requires_grad": True}
        x, weights = torch.randn(4, 3, **double), torch.rand(4, 2, **double)
        up, down = torch.randn(3, 4, 3, **double), torch.randn(3, 3, 2, **double)
        experts = torch.tensor([[0, 2], [2, 0], [0, 2], [2, 2]], device=device)  # 1 has no token

        def function(x, weights, up, down):
            return functional.moe_experts(x, experts, weights, up, down, None, None, "gelu", True)

        assert torch.autograd.gradcheck(function, (x, weights, up, down))

    def test_inputs_are_checked(self, device):
        x, gate = torch.randn(2, 4, device=device), torch.randn(3, 4, device=device)
        with pytest.raises(ValueError, match="got 'tanh'"):
            functional.gated_linear(x, gate, activation="tanh", path="torch")
        with pytest.raises(ValueError, match="without `up`"):
            functional.gated_linear(x, gate, gate, gate[:, 0], path="torch")
        experts, weights = torch.tensor([[0], [2]], device=device), torch.ones(2, 1, device=device)
        up, down = torch.ones(2, 3, 4, device=device), torch.ones(2, 4, 3, device=device)
        with pytest.raises(IndexError, match=r"experts go from 0 to 1, got \[0, 2\]"):
            functional.moe_experts(x, experts, weights, up, down, path="torch")

    def test_compiled_in_one_graph(self, device):
        x, gate, up = (matrix(device, torch.float32, 6, 8) for _ in range(3))
        compiled = torch.compile(functional.gated_linear, backend="aot_eager", fullgraph=True)
        assert_close(compiled(x, gate, up), functional.gated_linear(x, gate, up), 1e-6)


class TestDispatch:
    @pytest.mark.parametrize(
        "hardware",
        [Hardware.nvidia((9, 0)), Hardware.amd("gfx942")],
        ids=lambda hardware: hardware.target,
    )
    @pytest.mark.parametrize("operation", ["gated_linear", "moe_experts"])
    def test_few_rows_in_triton_many_by_the_library(self, operation, hardware):
        few, bf16 = rows_variant(64), torch.bfloat16
        many = rows_variant(65)
        assert (
            REGISTRY.lookup(operation, Request(hardware, bf16, False, few)).kernel.name == "triton"
        )
        choice = REGISTRY.lookup(operation, Request(hardware, bf16, False, many))
        assert choice.kernel.name == "torch"
        assert choice.refused == {"triton": "for more than 64 rows the library multiplies faster"}
        assert rows_variant(512, 8) == few != rows_variant(513, 8)
        learns = REGISTRY.lookup(operation, Request(hardware, bf16, True, few))
        assert learns.kernel.name == "torch"
        assert REGISTRY.named("gated_linear", "triton", Request(hardware, bf16, True, many))

    def test_what_tiles_are_slow_at_is_the_librarys(self):
        x, weight = torch.ones(2, 64), torch.ones(32, 64)
        odd, across = "widths are multiples of 16", "would be copied"
        for tensors, reason in (
            ((x, weight, None, weight[:, 0]), None),
            ((x[:, :40], weight[:, :40]), odd),
            ((x, torch.ones(32, 72)[:, :64]), odd),
            ((torch.ones(2, 72)[:, :64], weight), odd),
            ((x, weight.T.contiguous().T), across),
            ((x, weight, torch.ones(2, 64, 32).mT), across),
        ):
            for hardware in (Hardware.nvidia((9, 0)), Hardware.amd("gfx942")):
                request = Request(hardware, variant=rows_variant(2, 1, *tensors))
                choice = REGISTRY.lookup("gated_linear", request)
                assert (choice.kernel.name == "triton") == (reason is None)
                assert (reason or "") in choice.refused.get("triton", "")
            assert rows_variant(0, 1, *tensors) == ""  # traced: sizes are not looked at

    @pytest.mark.parametrize("operation", ["gated_linear", "moe_experts"])
    def test_float32_without_a_matrix_instruction_is_for_fewer_rows(self, operation):
        for hardware, dtype, rows, taken in (
            (Hardware.nvidia((9, 0)), torch.float32, 16, "triton"),
            (Hardware.nvidia((9, 0)), torch.float32, 17, "torch"),
            (Hardware.nvidia((9, 0)), torch.float16, 64, "triton"),
            (Hardware.amd("gfx942"), torch.float32, 64, "triton"),
        ):
            request = Request(hardware, dtype, variant=rows_variant(8 * rows, 8))
            assert REGISTRY.lookup(operation, request).kernel.name == taken

    def test_sizes_are_asked_for_by_the_functions(self, monkeypatch):
        """A device's choices, on the CPU: where Triton were taken it would find no driver."""
        monkeypatch.setattr(functional, "hardware_of", lambda _: Hardware.nvidia((9, 0)))
        x, weight, experts = torch.ones(2, 40), torch.ones(64, 40), torch.zeros(2, 1).long()
        assert functional.gated_linear(x, weight).shape == (2, 64)
        given = (x, experts, torch.ones(2, 1), weight[None], torch.ones(1, 40, 64))
        assert functional.moe_experts(*given).shape == (2, 40)
        assert functional.softmax(torch.ones(1, 50257)).shape == (1, 50257)

    def test_experts_learn_by_the_library_only(self):
        request = Request(Hardware.nvidia((9, 0)), torch.bfloat16, gradient=True)
        with pytest.raises(KernelRefused, match="moe_experts/triton: has no backward"):
            REGISTRY.named("moe_experts", "triton", request)

    @pytest.mark.parametrize("operation", ["gated_linear", "moe_experts", "linear_cross_entropy"])
    def test_refused_with_a_reason(self, operation):
        for request, reason in (
            (Request(Hardware.nvidia((7, 5))), "needs sm_80; this is sm_75"),
            (Request(Hardware.cpu()), "needs amd or nvidia; this is cpu"),
            (Request(Hardware.nvidia((9, 0)), torch.float64), "does not compute float64"),
            (Request(Hardware.nvidia((9, 0)), variant="mixed dtypes"), "must have one dtype"),
        ):
            with pytest.raises(KernelRefused, match=reason):
                REGISTRY.named(operation, "triton", request)
