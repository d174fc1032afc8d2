"""Nine demonstrations of attention patterns. Run: `python -m demos.flex_attention`.

Every demonstration also checks what it shows; it exits 1 if one fails.
"""

from __future__ import annotations

import copy
import sys
import time

import torch
from torch import Tensor, nn

from demos.stage import Part, require, show_all
from torchbridge import attention as att
from torchbridge import evidence
from torchbridge.attention import MultiHeadAttention
from torchbridge.numbers import relative_error
from torchbridge.timing import Spread, compare, timed

EMBED, HEADS = 256, 4
TOLERANCE = 1e-4  # relative, of float32 on whatever device


def path_for(device: torch.device) -> str:
    """Return FlexAttention on accelerators, on the CPU `auto`."""
    if device.type == "cpu":
        return "auto"
    reason = att.why_not_on(device)
    if reason is None:
        return "flex"
    evidence.degraded(reason)
    print(f"[DEGRADED] {reason}")
    return "auto"


def show(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """Run the layer, print its path, and compare it with an explicit softmax in float64."""
    layer = layer.to(x.device).eval()
    output = layer(x)
    if layer.fallback:
        evidence.degraded(layer.fallback)
    exact = copy.deepcopy(layer).cpu().double()
    exact.path = "explicit"
    error = relative_error(output, exact(x.cpu().double()))
    print(f"  Pattern {layer.pattern.name}: {tuple(x.shape)} -> {tuple(output.shape)}")
    print(f"  Computed by {layer.path_taken}, relative error {error:.1e} against float64")
    require(error < TOLERANCE, f"a relative error below {TOLERANCE}")
    return output


def input_of(device: torch.device, length: int) -> Tensor:
    """Return normal numbers [2, length, 256]."""
    return torch.randn(2, length, EMBED, device=device)


def positions_moved(layer: MultiHeadAttention, x: Tensor, changed: int) -> list[int]:
    """Return the positions whose output changes when position `changed` of x does."""
    other = x.clone()
    other[:, changed] += 1
    moved = (layer(x) - layer(other)).abs().amax(dim=(0, 2)) > 1e-6
    return moved.nonzero().flatten().tolist()


def availability(device: torch.device) -> None:
    """Show what FlexAttention offers on this device."""
    info = att.get_flex_info(device)
    print(f"FlexAttention compiled on {device}: {'yes' if info['available'] else info['reason']}")
    print("Patterns: " + ", ".join(info["patterns"]))
    print("Paths: " + ", ".join(att.PATHS))
    require(set(info["patterns"]) == {"full", *EIGHT}, "full and eight patterns")
    if not info["available"]:
        evidence.degraded(info["reason"])


EIGHT = (
    "causal",
    "sliding_window",
    "causal_sliding_window",
    "alibi",
    "document_masking",
    "prefix_lm",
    "soft_cap",
    "custom",
)


@torch.no_grad()
def basic(device: torch.device) -> None:
    """Show full attention."""
    layer = att.FlexAttentionLayer(EMBED, HEADS, path=path_for(device))
    show(layer, input_of(device, 128))
    print("  Stats:")
    for name, value in layer.get_stats().items():
        print(f"    {name}: {value}")
    require(layer.get_stats()["calls"] == 1, "one call in the statistics")


@torch.no_grad()
def causal(device: torch.device) -> None:
    """Show that no position sees later ones."""
    layer = att.FlexAttentionCausal(EMBED, HEADS, path=path_for(device))
    x = input_of(device, 64)
    show(layer, x)
    moved = positions_moved(layer, x, 40)
    print(f"  Changing position 40 moves positions {moved[0]} to {moved[-1]}")
    require(moved == list(range(40, 64)), "positions 40 to 63 to move, no other")


@torch.no_grad()
def sliding_window(device: torch.device) -> None:
    """Show that a position sees 31 positions on either side."""
    layer = att.FlexAttentionSlidingWindow(EMBED, HEADS, window=32, path=path_for(device))
    x = input_of(device, 128)
    show(layer, x)
    moved = positions_moved(layer, x, 64)
    print(f"  Changing position 64 moves positions {moved[0]} to {moved[-1]}")
    require(moved == list(range(33, 96)), "positions 33 to 95 to move, no other")
    shape = (1, 1, 2048, 2048)
    mask = att.block_masks.lookup(att.CausalSlidingWindow(128), shape, device)
    print(f"  Of a causal window of 128 in 2048 positions, {mask.sparsity():.1f} % is skipped")


@torch.no_grad()
def custom_score_mod(device: torch.device) -> None:
    """Show scores capped by a custom function, and by the built-in pattern."""

    def capped(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return 0.5 * torch.tanh(score / 0.5)

    x = input_of(device, 64)
    layers = [
        att.create_flex_attention(name, EMBED, HEADS, path=path_for(device), **options)
        for name, options in (("custom", {"score": capped}), ("soft_cap", {"cap": 0.5}))
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    own, ready = (show(layer, x) for layer in layers)
    require(relative_error(own, ready) < TOLERANCE, "the same from both")
    layers[1].pattern = att.FULL
    difference = relative_error(own, layers[1](x))
    print(f"  Without the cap the output is {100 * difference:.1f} % elsewhere")
    require(difference > 1e-3, "the cap to matter")


@torch.no_grad()
def alibi(device: torch.device) -> None:
    """Show scores that decrease with distance at a rate per head."""
    slopes = att.alibi_slopes(HEADS)
    print("  Slopes of the heads: " + ", ".join(f"{slope:.4f}" for slope in slopes))
    layer = att.FlexAttentionALiBi(EMBED, HEADS, path=path_for(device))
    x = input_of(device, 128)
    output = show(layer, x)
    layer.pattern = att.Causal()
    difference = relative_error(output, layer(x))
    print(f"  Without the slopes the output is {100 * difference:.1f} % elsewhere")
    require(difference > 1e-2, "the slopes to matter on this device")


@torch.no_grad()
def performance(device: torch.device) -> None:
    """Time a compiled window of 32 against SDPA with a dense mask."""
    reason = att.why_not_on(device)
    if reason is not None:
        evidence.degraded(reason)
    path = "flex" if reason is None else "auto"
    layers = {
        name: att.FlexAttentionSlidingWindow(512, 8, window=32, causal=True, path=name)
        for name in (path, "sdpa")
    }
    ours, theirs = (layer.to(device).eval() for layer in layers.values())
    theirs.load_state_dict(ours.state_dict())
    print("  batch 4, embed 512, 8 heads, 3 warm-up, 10 pairs, medians")
    print("  seq    first call      flex      SDPA   ratio")
    for length in (64, 128, 256, 512):
        x = torch.randn(4, length, 512, device=device)
        first = timed(lambda x=x: ours(x), device)
        error = relative_error(ours(x), theirs(x))
        require(error < TOLERANCE, "the same from both")
        for _ in range(3):
            ours(x), theirs(x)
        times = compare(lambda x=x: ours(x), lambda x=x: theirs(x), device=device, quads=5)
        mine, other = (
            1e3 * Spread.from_samples(samples).median
            for samples in (times.subject_s, times.baseline_s)
        )
        print(
            f"  {length:>3} {first:>10.2f} s {mine:>6.2f} ms {other:>6.2f} ms {other / mine:>6.2f}x"
        )
    print(f"  Computed by {ours.path_taken}, against {theirs.path_taken}")


def transformer_block(device: torch.device) -> None:
    """Show a block of width 256, 4 heads, 1024 hidden: gradients and a training step."""
    attention = att.FlexAttentionCausal(EMBED, HEADS)
    before = nn.LayerNorm(EMBED)
    mlp = nn.Sequential(
        nn.LayerNorm(EMBED), nn.Linear(EMBED, 1024), nn.GELU(), nn.Linear(1024, EMBED)
    )
    block = nn.ModuleList((before, attention, mlp)).to(device)
    x = input_of(device, 64)

    def run() -> Tensor:
        hidden = x + attention(before(x))
        return hidden + mlp(hidden)

    target = x.roll(1, dims=1)  # of the position before: only attention can fetch it
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-3)
    losses, start = [], time.perf_counter()
    for _ in range(20):
        loss = (run() - target)[:, 1:].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - start
    count = sum(p.numel() for p in block.parameters())
    still = [name for name, p in block.named_parameters() if p.grad.abs().max() == 0]
    print(f"  Block of {count:,} parameters, x {tuple(x.shape)}, trained by {attention.path_taken}")
    print(f"  Loss {losses[0]:.4f} -> {losses[-1]:.4f} in 20 steps, {seconds:.2f} s")
    require(count == 789_760, "789,760 parameters")
    require(not still, f"a gradient for every parameter, not {still}")
    require(losses[-1] < 0.7 * losses[0], "the loss to fall by a third")


@torch.no_grad()
def registry(device: torch.device) -> None:
    """Show layers created by name."""
    x = input_of(device, 64)
    for name, kind in att.REGISTRY.items():
        options = {"window": 16} if name == "flex_sliding_window" else {}
        layer = att.create_attention(name, EMBED, HEADS, **options).to(device).eval()
        require(type(layer) is kind and layer(x).shape == x.shape, f"a {kind.__name__}")
        print(f"  {name!r}: {kind.__name__}, computed by {layer.path_taken}")
    try:
        att.create_flex_attention("ring", EMBED, HEADS)
    except ValueError as refusal:
        print(f"  Refused: {refusal}")
    else:
        require(False, "a pattern that does not exist to be refused")


DEMOS: tuple[Part, ...] = (
    ("Availability", availability),
    ("Basic FlexAttention", basic),
    ("Causal Attention", causal),
    ("Sliding Window Attention", sliding_window),
    ("Custom Score Modification (soft cap)", custom_score_mod),
    ("ALiBi", alibi),
    ("Performance Comparison", performance),
    ("Transformer Block", transformer_block),
    ("Attention Registry", registry),
)


if __name__ == "__main__":
    sys.exit(show_all("FlexAttention Demonstrations", DEMOS))
