"""Capacity mode: which tokens are dropped, how many, and that the choice is deterministic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from suites import moe_reference as ref
from suites.numerics import double, relative_error
from torchbridge import moe
from torchbridge.moe import MoEConfig, MoELayer

CASES = [  # tokens, experts, top-k, capacity factor
    (512, 8, 2, "1.25"),
    (512, 8, 2, "0.5"),
    (333, 7, 3, "1"),
    (100, 16, 4, "0.9"),
    (64, 4, 1, "1.1"),
    (5, 8, 2, "0.01"),
    (1, 2, 2, "1"),
    (77, 5, 2, "5"),  # room for all
]


def layer_of(device, hidden=12, router=None, **settings) -> MoELayer:
    """Return a small float64 layer in capacity mode."""
    settings = {"drop_tokens": True, "min_capacity": 0, **settings}
    layer = MoELayer(MoEConfig(**settings), hidden, 20, router=router)
    return layer.to(device, torch.float64).eval()


def normal(device, *shape) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, device=device)


def python_kept(layer: MoELayer, x: torch.Tensor, capacity: int) -> set[tuple[int, int]]:
    """Return the kept (token, choice) pairs, computed in Python from the layer's routing."""
    routing = layer.router(x)
    return ref.kept_python(routing["probs"].tolist(), routing["expert_indices"].tolist(), capacity)


def dense_with_drops(layer: MoELayer, x: torch.Tensor, kept: set[tuple[int, int]]) -> torch.Tensor:
    """Return the reference output, with weight zero for dropped assignments."""
    routing = layer.router(x)
    weights = double(routing["expert_weights"])
    for token, choice in torch.cartesian_prod(*map(torch.arange, weights.shape)).tolist():
        if (token, choice) not in kept:
            weights[token, choice] = 0
    outputs = ref.all_experts(layer, double(x))
    return ref.combine(outputs, routing["expert_indices"].cpu(), weights)


@pytest.mark.parametrize(("tokens", "experts", "top_k", "factor"), CASES)
def test_drops_are_exactly_these(device, tokens, experts, top_k, factor):
    settings = {"num_experts": experts, "top_k": top_k, "capacity_factor": float(factor)}
    layer = layer_of(device, **settings)
    x = normal(device, tokens, 12) + 0.4  # uneven: some experts overflow
    capacity = min(tokens, math.ceil(Fraction(factor) * tokens * top_k / experts))
    kept = python_kept(layer, x, capacity)
    with torch.no_grad():
        output, aux = layer(x, return_router_logits=True)
        expected = dense_with_drops(layer, x, kept)
    assert aux["tokens_dropped"].item() == tokens * top_k - len(kept)
    indices = layer.router(x)["expert_indices"].tolist()
    counts = [sum(indices[t][c] == e for t, c in kept) for e in range(experts)]
    assert layer.computed.tolist() == counts
    assert (output.cpu() - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_drops_are_no_accident(device):
    layer = layer_of(device, capacity_factor=0.6)
    x = normal(device, 512, 12)
    first = layer(x)
    assert layer.dropped.item() > 100
    assert all(torch.equal(layer(x), first) for _ in range(3))
    order = torch.randperm(512, device=device)
    assert relative_error(layer(x[order]), first[order]) <= 1e-12  # position does not matter


def test_dropped_tokens_have_no_gradient(device):
    layer = layer_of(device, num_experts=2, top_k=1, capacity_factor=0.5)
    x = normal(device, 40, 12).requires_grad_()
    output = layer(x)
    output.square().sum().backward()
    lost = output.detach().abs().sum(dim=1) == 0
    assert lost.sum().item() == layer.dropped.item() >= 20
    assert x.grad[lost].abs().max().item() == 0
    assert x.grad[~lost].abs().sum(dim=1).min().item() > 0


@pytest.mark.parametrize("expert_type", ["convolutional", "attention", "parameter_efficient"])
def test_other_experts(device, expert_type):
    config = MoEConfig(num_experts=4, drop_tokens=True, capacity_factor=0.5, min_capacity=0)
    layer = MoELayer(config, 12, 24, expert_type=expert_type).to(device, torch.float64).eval()
    x = normal(device, 50, 12)
    with torch.no_grad():
        expected = dense_with_drops(layer, x, python_kept(layer, x, 13))  # ceil(0.5 * 50 * 2 / 4)
        assert relative_error(layer(x), expected) <= 1e-12


def test_dynamic_capacity(device):
    config = MoEConfig(num_experts=4, drop_tokens=True, capacity_factor=2.0, min_capacity=0)
    router = moe.DynamicCapacityRouter(12, config)
    layer = MoELayer(config, 12, 20, router=router).to(device, torch.float64).eval()
    x = 3 * normal(device, 200, 12) + 3
    factor = router(x)["capacity_factor"].item()
    assert 1.05 < factor < 1.95
    capacity = math.ceil(factor * 200 * 2 / 4)
    with torch.no_grad():
        expected = dense_with_drops(layer, x, python_kept(layer, x, capacity))
        assert relative_error(layer(x), expected) <= 1e-12
    assert layer.dropped.item() == 400 - len(python_kept(layer, x, capacity)) > 0


@pytest.mark.parametrize(
    ("settings", "tokens", "capacity"),
    [
        ({"num_experts": 10, "top_k": 1, "capacity_factor": 1.1}, 100, 11),  # binary: 12
        ({"min_capacity": 4}, 8, 4),  # 1.25 * 8 * 2 / 8 = 2.5, raised
        ({"min_capacity": 4}, 3, 3),  # an expert meets a token once
        ({"min_capacity": 0}, 9, 3),
        ({"num_experts": 2, "top_k": 2, "capacity_factor": 3.0}, 50, 50),
        ({}, 0, 0),
        ({}, 4096, 1280),
    ],
)
def test_capacity_by_hand(settings, tokens, capacity):
    assert MoEConfig(**settings).capacity(tokens) == capacity
