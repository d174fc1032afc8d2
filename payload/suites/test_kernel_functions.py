"""The public functions of the kernels: which kernel they take here, and that they say so."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from suites.numerics import assert_close, needs_cuda, needs_module
from torchbridge.fp8 import FP8QuantizedTensor, Granularity
from torchbridge.hardware import probe
from torchbridge.kernels import REGISTRY, KernelRefused, functional, linear_gelu

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]
CALLS = {
    "rms_norm": lambda x, **how: functional.rms_norm(x, x[0], 1e-6, **how),
    "layer_norm": lambda x, **how: functional.layer_norm(x, x[0], x[1], **how),
    "softmax": functional.softmax,
    "quantise_rows": lambda x, **how: functional.quantise_rows(x, **how).dequantize(),
}
LIBRARY = {
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], x[0], 1e-6),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], x[0], x[1]),
    "softmax": lambda x: F.softmax(x, -1),
    "quantise_rows": lambda x: by_rows(x).dequantize(),
}


def by_rows(x: torch.Tensor) -> FP8QuantizedTensor:
    """The library's own way."""
    return FP8QuantizedTensor.from_tensor(x, granularity=Granularity.ROW)


class TestFunctional:
    """What the public functions take, on this machine's device."""

    @pytest.mark.parametrize("name", CALLS)
    def test_auto_and_torch_are_the_librarys_numbers(self, device, name):
        x = torch.randn(5, 33, device=device)
        expected = LIBRARY[name](x)
        assert torch.equal(CALLS[name](x, path="torch"), expected)
        assert_close(CALLS[name](x), expected, 2e-6)

    @pytest.mark.parametrize("name", CALLS)
    def test_triton_by_name_is_used_or_refused(self, device, name):
        x = torch.randn(5, 33, device=device)
        vendor = probe(device).vendor
        if vendor not in ("nvidia", "amd"):
            reason = f"{name}/triton: needs amd or nvidia; this is {vendor}"
            with pytest.raises(KernelRefused, match=reason):
                CALLS[name](x, path="triton")
            return
        try:
            made = CALLS[name](x, path="triton")
        except KernelRefused as refused:  # an old chip, no Triton: the suite of targets has them
            pytest.skip(str(refused))
        assert_close(made, LIBRARY[name](x), 2e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_default_eps_is_the_step_of_the_dtype_whoever_computes(self, device, dtype):
        x = (0.05 * torch.randn(9, 40, device=device)).to(dtype)
        wide = x.double()
        scale = (wide.square().mean(-1, keepdim=True) + torch.finfo(dtype).eps).rsqrt()
        for given in (x, x.clone().requires_grad_()):
            limit = 4 * torch.finfo(dtype).eps
            assert_close(functional.rms_norm(given).double(), wide * scale, limit)

    @needs_cuda()
    @pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
    def test_what_a_norm_gives_may_be_changed_in_place(self, device, name):
        x = torch.randn(7, 33, device=device, requires_grad=True)
        doubled = CALLS[name](x, path="triton").mul_(2)
        (slope,) = torch.autograd.grad(doubled.square().sum(), x)
        (wanted,) = torch.autograd.grad((2 * LIBRARY[name](x)).square().sum(), x)
        assert_close(slope, wanted, 1e-5)

    @pytest.mark.parametrize("name", CALLS)
    def test_unknown_path(self, device, name):
        with pytest.raises(KernelRefused, match=f"{name} has no kernel 'cuda'; it has: triton"):
            CALLS[name](torch.ones(2, 4, device=device), path="cuda")

    @pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "softmax"])
    def test_gradients(self, device, name):
        x = torch.randn(5, 33, device=device, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(CALLS[name], (x,))

    @pytest.mark.parametrize("name", CALLS)
    def test_under_torch_compile_it_is_the_librarys(self, device, name):
        torch.compiler.reset()
        x = torch.randn(5, 33, device=device)
        compiled = torch.compile(CALLS[name], backend="eager", fullgraph=True)
        assert torch.equal(compiled(x), LIBRARY[name](x))

    def test_autocast_has_its_rules(self, device):
        x = torch.randn(3, 8, device=device, dtype=torch.bfloat16)
        with torch.autocast(device.type, torch.bfloat16):
            assert functional.softmax(x).dtype == F.softmax(x, -1).dtype
            assert functional.layer_norm(x).dtype == F.layer_norm(x, (8,)).dtype

    def test_autocast_leaves_float8_alone(self, device, monkeypatch):
        asked, lookup = [], REGISTRY.lookup
        monkeypatch.setattr(REGISTRY, "lookup", lambda *ask: asked.append(ask[0]) or lookup(*ask))
        x = torch.randn(3, 8, device=device)
        with torch.autocast(device.type, torch.bfloat16):
            functional.softmax(x)
            functional.quantise_rows(x)
        assert asked == ["quantise_rows"]

    def test_shapes_without_numbers(self):
        """Autocast does not answer for "meta"."""
        x = torch.empty(2, 8, device="meta", requires_grad=True)
        for call in (functional.rms_norm, functional.softmax, lambda x: linear_gelu(x, x)[0]):
            assert call(x).is_meta
        assert functional.gated_linear(x, x, x).shape == (2, 2)
        loss = functional.linear_cross_entropy(x, x, x[:, 0].long())
        assert torch.autograd.grad(loss, x)[0].shape == x.shape

    def test_softmax_along_any_dimension(self, device):
        x = torch.randn(3, 4, 5, device=device)
        for dim in (-1, 0, 1, 2, -2):
            assert torch.equal(functional.softmax(x, dim), F.softmax(x, dim))
        assert functional.softmax(torch.tensor(2.0, device=device), 0).item() == 1

    def test_float8_formats(self, device):
        x = torch.randn(4, 40, device=device)
        native = functional.quantise_rows(x).data.dtype
        assert native in FLOAT8
        short = native is torch.float8_e4m3fn
        five = functional.quantise_rows(x, torch.float8_e5m2 if short else torch.float8_e5m2fnuz)
        assert (five.scale.shape, five.dtype) == ((4, 1), torch.float32)
        other = FLOAT8[1] if short else FLOAT8[0]
        with pytest.raises(KernelRefused, match=f"computes with .*, not {str(other)[13:]}"):
            functional.quantise_rows(x, other)
        with pytest.raises(ValueError, match="a matrix has rows"):
            functional.quantise_rows(x[0])

    @needs_module("triton")
    def test_triton_is_not_interpreted_here(self):
        import triton

        from suites.triton_kernels import scale

        assert isinstance(scale, triton.JITFunction)
