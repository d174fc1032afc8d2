"""A gated linear layer: the library's numbers, and Triton's on the device or interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from suites import interpreter, kernel_reference
from suites.covering import pairwise
from suites.interpreter import needs_triton
from suites.numerics import assert_close
from torchbridge.kernels import gated_linear

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ACTIVATIONS = list(kernel_reference.ACTIVATION)
# rows, depth, columns: one of each; none a multiple of a tile; tiles for few, some and many rows
SIZES = [(1, 1, 1), (1, 70, 45), (16, 64, 64), (33, 100, 45), (65, 33, 70), (130, 17, 129)]


def given(device: torch.device, dtype: torch.dtype, size: tuple[int, int, int]) -> list[Tensor]:
    """x, gate and up, which want gradients."""
    rows, depth, columns = size
    weights = torch.randn(2, columns, depth, device=device) * depth**-0.5
    parts = (torch.randn(rows, depth, device=device), *weights)
    return [one.to(dtype).requires_grad_() for one in parts]


@pytest.mark.parametrize(
    ("dtype", "activation", "size"), pairwise([torch.float64, *DTYPES], ACTIVATIONS, SIZES)
)
def test_the_librarys_numbers(device, dtype, activation, size):
    tensors = given(device, dtype, size)
    inputs = kernel_reference.leaves(*tensors)
    expected = kernel_reference.gated_linear(*inputs, activation)
    output = gated_linear(*tensors, activation)
    assert output.dtype == dtype
    assert_close(output, expected)
    upstream = torch.randn(output.shape, device=device)
    actual = torch.autograd.grad(output, tensors, upstream.to(dtype))
    wanted = kernel_reference.gradients(expected, inputs, upstream)
    for one, should in zip(actual, wanted, strict=True):
        assert_close(one, should, 5e-5 if dtype == torch.float32 else None)


def test_compiled_in_one_graph(device):
    tensors = given(device, torch.float32, (6, 8, 6))
    compiled = torch.compile(gated_linear, backend="aot_eager", fullgraph=True)
    assert_close(compiled(*tensors), gated_linear(*tensors), 1e-6)


def test_an_unknown_activation(device):
    with pytest.raises(ValueError, match="one of relu, gelu, gelu_tanh, silu, got 'tanh'"):
        gated_linear(*given(device, torch.float32, SIZES[0]), "tanh", path="torch")


@needs_triton
class TestTriton:
    def run(self, *tensors: Tensor | str) -> Tensor:
        """The kernel's output."""
        detached = [one.detach() if isinstance(one, Tensor) else one for one in tensors]
        return interpreter.run("gated.in_triton", *detached)

    @pytest.mark.parametrize(("dtype", "activation", "size"), pairwise(DTYPES, ACTIVATIONS, SIZES))
    def test_numbers(self, device, dtype, activation, size):
        interpreter.needs_products(dtype)
        tensors = given(device, dtype, size)
        output = self.run(*tensors, activation)
        assert (output.shape, output.dtype) == ((size[0], size[2]), dtype)
        inputs = kernel_reference.leaves(*tensors)
        assert_close(output, kernel_reference.gated_linear(*inputs, activation))

    def test_strides_change_nothing(self, device):
        _, gate, up = (one.detach() for one in given(device, torch.float32, (1, 48, 20)))
        x = torch.randn(48, 30, device=device).T
        expected = self.run(x.contiguous(), gate, up)
        assert torch.equal(self.run(x, gate, up), expected)
        apart = torch.cat([gate, up], dim=1)  # rows that lie apart
        assert torch.equal(self.run(x, apart[:, :48], apart[:, 48:]), expected)
        shaped = self.run(x.contiguous().reshape(5, 6, 48), gate, up)
        assert torch.equal(shaped, expected.reshape(5, 6, 20))
        assert self.run(x[:0], gate, up).shape == (0, 20)

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_nan_stays_in_its_row(self, device, activation):
        x, gate, up = (one.detach() for one in given(device, torch.float32, (20, 16, 9)))
        x[3, 5] = float("nan")
        output = self.run(x, gate, up, activation)
        assert output.isnan().all(1).tolist() == [row == 3 for row in range(20)]

    def test_inputs_are_checked(self, device):
        from torchbridge.kernels.gated import in_triton

        x, gate, up = given(device, torch.float32, (2, 8, 5))
        for tensors, reason in (
            ((x, gate, up, "tanh"), "got 'tanh'"),
            ((x, gate, up[:4]), r"\(2, 8\) on .*, \(4, 8\) on .* do not go"),
            ((x, gate[:, :7], up[:, :7]), r"\(5, 7\) on .* do not go"),
            ((x, gate.half(), up), "dtypes must be one"),
            ((x, gate.to("meta"), up), r"\(5, 8\) on meta"),
        ):
            with pytest.raises(ValueError, match=reason):
                in_triton(*tensors)
