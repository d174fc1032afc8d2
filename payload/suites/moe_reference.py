"""MoE layers of each kind, and their reference: all experts on all tokens in float64."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from suites.kernel_reference import ACTIVATION
from suites.numerics import TOLERANCE, double, relative_error
from torchbridge import moe
from torchbridge.moe import FeedForwardBank, MoEConfig, MoELayer
from torchbridge.moe.grouped import why_not

STILL = {"expert_dropout": 0.0, "router_dropout": 0.0, "activation": "silu"}
KINDS = [*moe.LAYERS, "attention", "dynamic", "hash", "learned"]
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def feed_forward(x: Tensor, weights: dict[str, Tensor], activation: str, gated: bool) -> Tensor:
    """Return the output of one feed-forward expert for x [T, d] -> [T, d]."""
    hidden = x @ weights["up"].T + weights.get("up_bias", 0)
    if gated:
        half = hidden.shape[-1] // 2
        hidden = ACTIVATION[activation](hidden[:, :half]) * hidden[:, half:]
    else:
        hidden = ACTIVATION[activation](hidden)
    return hidden @ weights["down"].T + weights.get("down_bias", 0)


def all_experts(layer: MoELayer, x: Tensor) -> Tensor:
    """Return float64 outputs [E, T, d]: each expert of `layer` on each token of x [T, d]."""
    bank = layer.experts
    if not isinstance(bank, FeedForwardBank):
        return torch.stack([copy.deepcopy(e).cpu().double()(x) for e in bank.experts])
    stacked = {name: double(value) for name, value in bank.named_parameters()}
    each = [{name: value[e] for name, value in stacked.items()} for e in range(len(bank))]
    activation = layer.config.activation
    return torch.stack([feed_forward(x, w, activation, bank.gated) for w in each])


def combine(outputs: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum [T, d] of outputs [E, T, d], one token and one choice at a time.

    `indices` and `weights` are [T, k].
    """
    total = torch.zeros(outputs.shape[1:], dtype=outputs.dtype)
    for token, (experts, shares) in enumerate(zip(indices.tolist(), weights, strict=True)):
        for expert, share in zip(experts, shares, strict=True):
            total[token] = total[token] + share * outputs[expert, token]
    return total


def dense_moe(layer: MoELayer, x: Tensor) -> Tensor:
    """Return the reference output of a dropless layer in eval mode for x [..., d].

    The routing is that of the layer's own router.
    """
    tokens = x.detach().reshape(-1, x.shape[-1])
    with torch.no_grad():
        routing = layer.router(tokens)
        outputs = all_experts(layer, double(tokens))
        indices, weights = routing["expert_indices"].cpu(), double(routing["expert_weights"])
        return combine(outputs, indices, weights).reshape(x.shape)


def dense_differentiable(layer: MoELayer, x: Tensor, leaves: dict[str, Tensor]) -> Tensor:
    """Return a layer's differentiable float64 output for x [T, d], by normalised top-k routing.

    `leaves` are the layer's parameters by name, in float64.
    """
    probs = (x @ leaves["router.gate.weight"].T).softmax(dim=-1)
    weights, indices = probs.topk(layer.config.top_k, dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    names = [name for name, _ in layer.experts.named_parameters()]
    outputs = torch.stack(
        [
            feed_forward(
                x,
                {name: leaves[f"experts.{name}"][e] for name in names},
                layer.config.activation,
                layer.experts.gated,
            )
            for e in range(layer.config.num_experts)
        ]
    )
    return combine(outputs, indices, weights)


def double_leaves(layer: nn.Module) -> dict[str, Tensor]:
    """Return the layer's parameters by name, as float64 leaves on the CPU that need gradients."""
    return {name: double(p).requires_grad_() for name, p in layer.named_parameters()}


def parameters(module: nn.Module) -> int:
    """Return how many trainable numbers a module has."""
    return sum(p.numel() for p in module.parameters())


def assert_matches_reference(layer: MoELayer, x: Tensor) -> dict[str, Tensor]:
    """Check that a layer in eval mode equals the reference and drops no token; return its aux."""
    layer = layer.to(x.device, x.dtype).eval()
    layer.reset_expert_utilization()
    with torch.no_grad():
        output, aux = layer(x, return_router_logits=True)
    assert output.shape == x.shape
    assert output.dtype == x.dtype
    assert relative_error(output, dense_moe(layer, x)) <= TOLERANCE[x.dtype]
    assert layer.computed.sum().item() == x.shape[:-1].numel() * layer.config.top_k
    assert aux["tokens_dropped"].item() == 0
    return aux


MASK_64 = 2**64 - 1


def mix_python(value: int) -> int:
    """Return splitmix64's finaliser of an unsigned 64-bit integer."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK_64
    return value ^ (value >> 31)


def hash_row_python(bits: list[int]) -> int:
    """Return the hash of one token, from the signed 32-bit patterns of its features."""
    total = 0
    for column, pattern in enumerate(bits, start=1):
        total += pattern * (mix_python(column * 0x9E3779B97F4A7C15 & MASK_64) | 1)
    return mix_python(total & MASK_64)


def hash_experts_python(token: int, num_experts: int, top_k: int, salt: int = 0) -> list[int]:
    """Return the k experts with the smallest tickets for a token's hash.

    A ticket is a hash of token and expert, compared as a signed number.
    """
    tickets = []
    for expert in range(num_experts):
        ticket = mix_python(token ^ mix_python(expert + 1 + salt * num_experts))
        tickets.append((ticket - 2**64 if ticket >= 2**63 else ticket, expert))
    return [expert for _, expert in sorted(tickets)[:top_k]]


def kept_python(probs: list[list[float]], indices: list[list[int]], capacity: int) -> set:
    """Return the (token, choice) pairs that fit `capacity`: each expert's most probable tokens."""
    queues: dict[int, list[tuple[float, int, int]]] = {}
    for token, experts in enumerate(indices):
        for choice, expert in enumerate(experts):
            queues.setdefault(expert, []).append((-probs[token][expert], token, choice))
    return {(t, c) for queue in queues.values() for _, t, c in sorted(queue)[:capacity]}


def best_makespan(counts: list[int], workers: int) -> int:
    """Return the smallest possible largest load of a worker, by trying all placements."""
    loads = []
    for way in itertools.product(range(workers), repeat=len(counts)):
        pairs = list(zip(counts, way, strict=True))
        loads.append(max(sum(c for c, w in pairs if w == worker) for worker in range(workers)))
    return min(loads)


def train_classifier(device: torch.device, steps: int) -> list[float]:
    """Return the loss of each training step of a small seeded model on learnable labels."""
    torch.manual_seed(5)
    layer = moe.create_moe(32, num_experts=4, expert_dropout=0.0, router_dropout=0.0)
    head = nn.Linear(32, 4)
    model = nn.ModuleList([layer, head]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x = torch.randn(256, 32, device=device)
    labels = x[:, :4].argmax(dim=1)
    losses = []
    for _ in range(steps):
        hidden, aux = layer(x, return_router_logits=True)
        loss = F.cross_entropy(head(x + hidden), labels)
        optimizer.zero_grad()
        (loss + aux["load_balance_loss"] + aux["router_z_loss"]).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def layer_of(device, dtype, dispatch, hidden=32, expert_hidden=64, kind="standard", **settings):
    """Return a layer of a kind, or a standard layer with experts or a router of that kind."""
    config = MoEConfig(**{**STILL, "dispatch": dispatch, **settings})
    if kind in moe.LAYERS:
        layer = moe.create_moe_layer(kind, hidden, expert_hidden, config=config)
    elif kind in moe.ROUTERS:
        router = moe.create_router(kind, hidden, config=config)
        layer = MoELayer(config, hidden, expert_hidden, router=router)
    else:
        layer = MoELayer(config, hidden, expert_hidden, expert_type=kind)
    return layer.to(device, dtype)


def skip_without(device, dtype, dispatch) -> None:
    """Skip the test if torch has no grouped kernel here; fail if its kernel's numbers are wrong."""
    reason = why_not(device, dtype, (32, 64)) if dispatch == "grouped_mm" else None
    if reason:
        assert "wrong numbers" not in reason, reason
        pytest.skip(reason)


def skip_kind(kind: str) -> None:
    if kind == "attention":
        pytest.skip("only feed-forward experts have a grouped form")
