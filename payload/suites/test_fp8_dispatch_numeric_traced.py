"""Float8 layers traced whole: torch.compile sees the quantising, the products and the choice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from suites.numerics import assert_close, rms_error
from torchbridge.fp8 import FP8InferenceLinear, NativeFP8Linear

pytestmark = pytest.mark.usefixtures("in_float8")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
class TestTraced:
    """Forward and backward in one graph each; the backend calls torch's operations as they are."""

    @pytest.mark.parametrize(
        ("granularity", "path", "dynamic"),
        [
            ("tensor", "auto", False),
            ("block", "auto", False),
            ("row", "auto", True),
            ("row", "dequantised", False),
            ("tensor", "predicted", True),
        ],
    )
    def test_training(self, device, granularity, path, dynamic):
        torch.compiler.reset()
        layer = NativeFP8Linear(272, 48, granularity=granularity, path=path, device=device)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        for rows in (5, 7) if dynamic else (5,):
            x = torch.randn(rows, 3, 272, device=device, requires_grad=True)
            gradients = []
            for one in (layer, traced):
                x.grad = layer.weight.grad = layer.bias.grad = None
                out = one(x)
                out.square().sum().backward()
                gradients.append((out.detach(), x.grad, layer.weight.grad, layer.bias.grad))
            for wanted, actual in zip(*gradients, strict=True):
                assert_close(actual, wanted, 1e-6)

    @pytest.mark.parametrize(("granularity", "path"), [("block", "auto"), ("row", "predicted")])
    def test_inference(self, device, granularity, path):
        torch.compiler.reset()
        plain = nn.Linear(272, 48, device=device)
        layer = FP8InferenceLinear(plain, granularity=granularity, path=path)
        x = torch.randn(5, 3, 272, device=device)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
        assert_close(traced(x), layer(x), 1e-6)

    def test_the_quantising_is_in_the_graph(self, device):
        """What makes x and what quantises it are in one graph, for a compiler to fuse."""
        graphs = []

        def keep(graph, _):
            graphs.append(graph)
            return graph

        layer = NativeFP8Linear(64, 32, bias=False, device=device)
        model = nn.Sequential(nn.GELU(), layer)
        torch.compiler.reset()
        torch.compile(model, backend=keep, fullgraph=True)(torch.randn(8, 64, device=device))
        assert len(graphs) == 1
        assert "gelu" in graphs[0].code
        inner = [one.code for one in graphs[0].children()] or [graphs[0].code]
        assert any("amax" in code or "abs" in code for code in [graphs[0].code, *inner])

    def test_a_synchronised_weight_is_used(self, device):
        torch.compiler.reset()
        layer = NativeFP8Linear(64, 32, bias=False, device=device).eval()
        x = torch.randn(8, 64, device=device)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
        wanted = layer(x)
        assert_close(traced(x), wanted, 1e-6)
        nn.init.ones_(layer.weight)
        assert rms_error(traced(x), wanted) > 0.5  # nothing was kept for the graph
        layer.sync_weights()
        ones = layer(x)
        nn.init.zeros_(layer.weight)
        assert_close(traced(x), ones, 1e-6)
