"""Eight demonstrations of the MoE library. Run: `python -m demos.moe`; exits 1 if one fails.

Every demonstration also checks what it shows.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import nn

from demos.moe_transformer import MoETransformer
from demos.stage import Part, require, show_all
from torchbridge import evidence, moe
from torchbridge.moe import MoEConfig, MoELayer
from torchbridge.timing import Spread, compare, warm_up

HIDDEN = 256


def parameters(*modules: nn.Module) -> int:
    """Count the parameters of the modules."""
    return sum(p.numel() for module in modules for p in module.parameters())


def run(layer: MoELayer, x: torch.Tensor) -> torch.Tensor:
    """Run the layer; check shape, values and assignments, and report fallbacks."""
    layer.reset_expert_utilization()
    output = layer(x)
    if layer.fallback:
        evidence.degraded(f"{type(layer).__name__}: {layer.fallback}")
    require(output.shape == x.shape and bool(torch.isfinite(output).all()), "a finite output")
    assignments = x.shape[:-1].numel() * layer.config.top_k
    require(int(layer.computed.sum()) == assignments, f"{assignments} assignments computed")
    return output


@torch.no_grad()
def basic(device: torch.device) -> None:
    """Show a layer and the shortcut that creates it."""
    layer = MoELayer(MoEConfig(num_experts=8, top_k=2), HIDDEN).to(device).eval()
    x = torch.randn(4, 32, HIDDEN, device=device)
    print("Config: 8 experts, top-2 routing")
    print(f"Created MoE layer with {len(layer.experts)} experts")
    print(f"Input shape: {tuple(x.shape)}")
    print(f"Output shape: {tuple(run(layer, x).shape)}")
    print(f"Computed {int(layer.computed.sum())} of {4 * 32 * 2} assignments by {layer.path_taken}")
    require(torch.equal(layer(x), layer(x)), "the same output twice")
    shortcut = moe.create_moe(HIDDEN, num_experts=8, top_k=2)
    require(parameters(shortcut) == parameters(layer), "as many parameters from create_moe")
    print(f"\nUsing create_moe convenience function: {len(shortcut.experts)} experts")


@torch.no_grad()
def layer_types(device: torch.device) -> None:
    """Show the five kinds of layer."""
    x = torch.randn(2, 16, HIDDEN, device=device)
    for name, kind in moe.LAYERS.items():
        layer = moe.create_moe_layer(name, HIDDEN).to(device).eval()
        shape = tuple(run(layer, x).shape)
        require(type(layer) is kind, f"a {kind.__name__}")
        active = f"{layer.config.top_k} of {len(layer.experts)} experts"
        print(f"  Factory {name!r}: {kind.__name__}, output {shape}, {active} per token")


@torch.no_grad()
def routing(device: torch.device) -> None:
    """Show the five routers."""
    x = torch.randn(100, HIDDEN, device=device)
    for name, kind in moe.ROUTERS.items():
        router = moe.create_router(name, HIDDEN).to(device).eval()
        result = router(x)
        indices, weights = result["expert_indices"], result["expert_weights"]
        print(f"Factory {name!r}: {kind.__name__}")
        print(f"  Expert indices {tuple(indices.shape)}, weights {tuple(weights.shape)}")
        distinct = indices.sort(dim=1).values.diff(dim=1)
        require(bool((distinct > 0).all()), "different experts for each token")
        if name == "hash":
            print(f"  Deterministic expert assignment: {indices[:5].tolist()}")
            require(torch.equal(router(x)["expert_indices"], indices), "the same experts twice")
        if name == "learned":
            print(f"  Router features shape: {tuple(result['features'].shape)}")
        if name == "dynamic":
            factor = result["capacity_factor"].item()
            print(f"  Complexity scores shape: {tuple(result['complexity'].shape)}")
            print(f"  Capacity factor: {factor:.3f} of at most 1.25")
            require(1 <= factor <= 1.25, "a capacity factor in 1..1.25")


@torch.no_grad()
def experts(device: torch.device) -> None:
    """Show the four kinds of expert."""
    x = torch.randn(100, HIDDEN, device=device)
    kinds = {
        "FeedForward": moe.FeedForwardExpert,
        "Convolutional": moe.ConvolutionalExpert,
        "Attention": moe.AttentionExpert,
        "Parameter-Efficient": moe.ParameterEfficientExpert,
    }
    sizes = {}
    for name, kind in kinds.items():
        expert = kind(HIDDEN, 4 * HIDDEN, MoEConfig()).to(device).eval()
        output, sizes[name] = expert(x), parameters(expert)
        print(f"{name} Expert: {sizes[name]:,} params, output shape: {tuple(output.shape)}")
        close = torch.allclose(output[:1], expert(x[:1]), atol=1e-5)
        require(close, "a token's output not to depend on its neighbours")
    require(sizes["FeedForward"] == 525_568, "525,568 feed-forward parameters")
    require(sizes["Parameter-Efficient"] < sizes["FeedForward"] / 4, "an efficient expert")


@torch.no_grad()
def balancing(device: torch.device) -> None:
    """Show capacity, drops and the balance losses."""
    config = MoEConfig(num_experts=8, top_k=2, capacity_factor=1.25, drop_tokens=True)
    layer = MoELayer(config, HIDDEN).to(device).eval()
    x = torch.randn(1000, HIDDEN, device=device)
    _, aux = layer(x, return_router_logits=True)
    info = layer.balancer.capacity_info(layer.router(x)["expert_indices"])
    print(f"Expert capacities: {info.expert_capacities}")
    print(f"Assignments: {info.assignments}, sum {sum(info.assignments)}")
    dropped = int(aux["tokens_dropped"])
    print(f"Tokens dropped: {dropped} of 2000 assignments")
    require(info.expert_capacities == [313] * 8, "313 = ceil(1.25 * 1000 * 2 / 8)")
    require(dropped == info.tokens_dropped, "as many drops as the counts imply")
    balance = aux["load_balance_loss"].item() / config.load_balance_loss_weight
    print(f"Load balance loss (switch): {balance:.4f} (2.0 is balanced)")
    require(1.9 < balance < 2.5, "a balance loss near 2")
    stats = layer.get_expert_utilization_stats()
    most, least = max(info.assignments) / 250, min(info.assignments) / 250
    print(f"Balance (entropy over ln 8): {stats['expert_balance']:.4f}")
    print(f"Max/Min assignment ratio: {most:.2f}/{least:.2f}")
    print("\nMoE with auxiliary losses:")
    for name in ("load_balance_loss", "router_z_loss", "tokens_dropped"):
        print(f"  {name}: {aux[name].item():.6f}")


def training(device: torch.device) -> None:
    """Show five steps of Adam on one batch."""
    layer = moe.create_moe(HIDDEN)
    model = nn.Sequential(nn.Linear(64, HIDDEN), layer, nn.Linear(HIDDEN, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(8, 16, 64, device=device)
    labels = x[..., :10].argmax(dim=-1).flatten()
    before = layer.experts.up.detach().clone()
    losses = []
    print("Training for 5 steps...")
    for step in range(1, 6):
        hidden, aux = layer(model[0](x), return_router_logits=True)
        main = F.cross_entropy(model[2](hidden).flatten(0, 1), labels)
        auxiliary = aux["load_balance_loss"] + aux["router_z_loss"]
        optimizer.zero_grad()
        (main + auxiliary).backward()
        optimizer.step()
        losses.append(main.item())
        print(f"  Step {step}: main_loss={losses[-1]:.4f}, aux_loss={auxiliary.item():.6f}")
    require(losses[-1] < losses[0], "the loss to fall")
    moved = (layer.experts.up - before).abs().amax(dim=(1, 2))
    require(bool((moved > 0).all()), "every expert's weights to move")
    stats = layer.get_expert_utilization_stats()
    print("\nExpert utilization after training:")
    print(f"  Balance: {stats['expert_balance']:.3f}")
    print(f"  Efficiency: {stats['expert_efficiency']:.3f} (computed of all assignments)")


@torch.no_grad()
def transformer(device: torch.device) -> None:
    """Show a two-layer language model with MoE feed-forward layers."""
    model = MoETransformer(vocabulary=1000, hidden=HIDDEN, heads=4, layers=2, experts=8)
    model = model.to(device).eval()
    tokens = torch.randint(0, 1000, (2, 32), device=device)
    logits, aux = model(tokens)
    print("MoE Transformer:")
    print(f"  Input: {tuple(tokens.shape)}")
    print(f"  Output logits: {tuple(logits.shape)}")
    print(f"  Auxiliary losses: {sum(len(one) for one in aux)} items")
    total, in_moe = parameters(model), parameters(*model.moe_layers)
    print(f"  Total params: {total:,}")
    print(f"  MoE params: {in_moe:,} ({100 * in_moe / total:.1f}%)")
    require((total, in_moe) == (9_585_640, 8_413_184), "9,585,640 parameters, 8,413,184 in MoE")
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 1000
    past = (model(changed)[0] - logits)[:, :-1].abs().max().item()
    require(past < 1e-4, "the last token not to change what comes before it")


@torch.no_grad()
def performance(device: torch.device) -> None:
    """Time a dense feed-forward layer against the MoE layer."""
    config = MoEConfig(num_experts=8, top_k=2)
    dense = moe.FeedForwardExpert(512, 2048, config).to(device).eval()
    layer = MoELayer(config, 512, 2048).to(device).eval()
    x = torch.randn(8, 128, 512, device=device)
    for work in (lambda: dense(x), lambda: run(layer, x)):
        warm_up(work, device, budget_s=2.0)
    times = compare(
        lambda: layer(x), lambda: dense(x), device=device, quads=25, at_least=3, budget_s=10.0
    )
    moe_ms = Spread.from_samples([1e3 * s for s in times.subject_s])
    dense_ms = Spread.from_samples([1e3 * s for s in times.baseline_s])
    ratio = parameters(layer) / parameters(dense)
    print(f"Input shape: {tuple(x.shape)}, {len(times.subject_s)} runs each, in turns, medians")
    print(f"\nStandard FFN:\n  Parameters: {parameters(dense):,}\n  Time: {dense_ms.median:.2f} ms")
    print("\nMoE (8 experts, top-2):")
    print(f"  Parameters: {parameters(layer):,}\n  Time: {moe_ms.median:.2f} ms")
    print(f"  Parameter ratio: {ratio:.1f}x")
    print(f"  Time ratio: {moe_ms.median / dense_ms.median:.1f}x (2.0x is the arithmetic)")
    require(parameters(layer) == 16_801_792, "16,801,792 parameters")


DEMOS: tuple[Part, ...] = (
    ("Basic MoE Layer", basic),
    ("Different MoE Layer Types", layer_types),
    ("Routing Strategies", routing),
    ("Expert Network Architectures", experts),
    ("Load Balancing", balancing),
    ("Training MoE Models", training),
    ("MoE in Transformer", transformer),
    ("Performance Comparison", performance),
)


if __name__ == "__main__":
    sys.exit(show_all("Mixture of Experts (MoE) Demonstrations", DEMOS))
