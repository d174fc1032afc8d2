"""Numbers of the fused layers: odd shapes, strides, dtypes, gradients, paths, compilers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites.covering import pairwise
from suites.kernel_reference import feed_forward, gelu, linear_activation, reference_gradients, silu
from suites.numerics import TOLERANCE, assert_close, double
from torchbridge.hardware import probe
from torchbridge.kernels import (
    REGISTRY,
    FusedFFNLayer,
    FusedLinearGELU,
    FusedLinearSiLU,
    KernelRefused,
    Request,
    epilogue_gelu,
    linear_gelu,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
LAYERS = {"gelu": (FusedLinearGELU, gelu), "silu": (FusedLinearSiLU, silu)}
NAMES = list(LAYERS)


def short(dtype: torch.dtype) -> str:
    """Return the dtype's name, for example "float32"."""
    return str(dtype).removeprefix("torch.")


def quiet(layer: nn.Module) -> nn.Module:
    """Return the layer without gradients, so that any kernel may be chosen."""
    return layer.requires_grad_(False)


class TestNumbers:
    @pytest.mark.parametrize(("name", "dtype", "bias"), pairwise(NAMES, DTYPES, [True, False]))
    def test_dtypes(self, device, name, dtype, bias):
        kind, activation = LAYERS[name]
        layer = quiet(kind(64, 48, bias).to(device, dtype))
        x = torch.randn(37, 64, device=device, dtype=dtype)
        assert layer(x).dtype == dtype
        assert_close(layer(x), linear_activation(layer, activation, x))

    @pytest.mark.parametrize("name", NAMES)
    def test_strides(self, device, name):
        kind, activation = LAYERS[name]
        layer = quiet(kind(24, 16).to(device))
        storage = torch.randn(8, 24, 10, device=device)
        for x in (storage.transpose(1, 2), storage[:, :, 0], storage.permute(2, 0, 1)[::2]):
            assert_close(layer(x), linear_activation(layer, activation, x))
            assert torch.equal(layer(x), layer(x.contiguous()))


class TestGradients:
    def test_frozen_weights_still_pass_gradients_on(self, device):
        layer = quiet(FusedLinearGELU(8, 6).to(device))
        x = torch.randn(5, 8, device=device, requires_grad=True)
        layer(x).sum().backward()
        assert layer.path_taken == "composed"
        expected = reference_gradients(layer, gelu, x, torch.ones(5, 6))[0]
        assert_close(x.grad, expected)


class TestPaths:
    @pytest.mark.parametrize("approximate", ["none", "tanh"])
    def test_every_kernel_of_gelu_agrees(self, device, approximate):
        x, weight, bias = (torch.randn(s, device=device) for s in ((9, 16), (12, 16), (12,)))
        expected = gelu(double(x) @ double(weight).T + double(bias), approximate)
        request = Request(probe(device), variant=approximate)
        able = [k for k in REGISTRY.kernels("linear_gelu") if k.refusal(request) is None]
        assert able[-1].name == "composed"
        for kernel in able:
            settings = {"approximate": approximate, "path": kernel.name}
            output, path = linear_gelu(x, weight, bias, **settings)
            assert path == kernel.name
            assert_close(output, expected)

    def test_epilogue_computes_what_was_asked_of_the_device(self, device):
        kind = epilogue_gelu(device.type)
        if kind is None:
            pytest.skip(f"torch has no GELU epilogue on {device.type}")
        other = {"none": "tanh", "tanh": "none"}[kind]
        x, weight = torch.randn(9, 16, device=device), torch.randn(12, 16, device=device)
        output, path = linear_gelu(x, weight, approximate=kind)
        assert path == "epilogue"
        assert_close(output, gelu(double(x) @ double(weight).T, kind))
        refused = pytest.raises(KernelRefused, match=f"computes approximate='{kind}' only")
        with refused:
            linear_gelu(x, weight, approximate=other, path="epilogue")
        assert linear_gelu(x, weight, approximate=other)[1] == "composed"

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=short)
    def test_autocast_has_rules_for_the_composition(self, device, dtype):
        """Autocast applies to the composition, so under autocast the epilogue is not taken."""
        kind = epilogue_gelu(device.type) or "none"
        layer = quiet(FusedLinearGELU(8, 6, approximate=kind).to(device))
        x = torch.randn(3, 8, device=device, dtype=dtype)
        with torch.autocast(device.type, torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        assert layer.path_taken == "composed"

    def test_no_epilogue_on_a_device_that_is_not_there(self):
        assert epilogue_gelu("xla") is None
        if not torch.cuda.is_available():
            assert epilogue_gelu("cuda") is None

    def test_layer_by_name_is_refused_when_it_must_learn(self, device):
        layer = FusedLinearGELU(4, 4, path="epilogue").to(device)
        with pytest.raises(KernelRefused, match="has no backward"):
            layer(torch.randn(2, 4, device=device))

    def test_inputs_are_checked(self, device):
        x, weight = torch.randn(2, 4, device=device), torch.randn(3, 4, device=device)
        with pytest.raises(ValueError, match="got 'sigmoid'"):
            linear_gelu(x, weight, approximate="sigmoid")
        with pytest.raises(ValueError, match="0 -> 3 features is empty"):
            FusedLinearSiLU(0, 3)


class TestLayers:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("dtype", DTYPES, ids=short)
    def test_feed_forward(self, device, name, dtype):
        layer = quiet(FusedFFNLayer(32, 128, 16, activation=name).to(device, dtype))
        x = torch.randn(3, 5, 32, device=device, dtype=dtype)
        assert_close(layer(x), feed_forward(layer, LAYERS[name][1], x), 2 * TOLERANCE[dtype])
        assert layer.path_taken == layer.up.path_taken != ""

    def test_exported_graph_holds_plain_operations(self, device):
        layer = quiet(FusedFFNLayer(12, 8).to(device))
        x = torch.randn(6, 12, device=device)
        program = torch.export.export(layer, (x,), strict=False)
        names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        assert names == ["aten.linear.default", "aten.gelu.default", "aten.linear.default"]
        assert_close(program.module()(x), feed_forward(layer, gelu, x))
