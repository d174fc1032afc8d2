"""Layers and routers by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchbridge.moe.config import MoEConfig
from torchbridge.moe.layers import (
    AdaptiveMoELayer,
    GLaMStyleMoE,
    MoELayer,
    SparseMoELayer,
    SwitchTransformerMoE,
)
from torchbridge.moe.routers import (
    DynamicCapacityRouter,
    HashRouter,
    LearnedRouter,
    SwitchRouter,
    TopKRouter,
)

LAYERS: dict[str, type[MoELayer]] = {
    "standard": MoELayer,
    "sparse": SparseMoELayer,
    "switch": SwitchTransformerMoE,
    "glam": GLaMStyleMoE,
    "adaptive": AdaptiveMoELayer,
}
ROUTERS: dict[str, type[nn.Module]] = {
    "topk": TopKRouter,
    "switch": SwitchRouter,
    "hash": HashRouter,
    "learned": LearnedRouter,
    "dynamic": DynamicCapacityRouter,
}


def _named(kinds: dict[str, Any], name: str, what: str) -> Any:
    if name not in kinds:
        raise ValueError(f"{what} must be one of {', '.join(kinds)}, got {name!r}")
    return kinds[name]


def create_moe_layer(
    moe_type: str,
    hidden_size: int,
    expert_hidden_size: int | None = None,
    *,
    config: MoEConfig | None = None,
    **options: Any,
) -> MoELayer:
    """A layer of a kind in `LAYERS`; options go to its class."""
    layer = _named(LAYERS, moe_type, "moe_type")
    return layer(config or MoEConfig(), hidden_size, expert_hidden_size, **options)


def create_moe(hidden_size: int, num_experts: int = 8, top_k: int = 2, **settings: Any) -> MoELayer:
    """A standard layer; further settings are fields of `MoEConfig`."""
    return MoELayer(MoEConfig(num_experts=num_experts, top_k=top_k, **settings), hidden_size)


def create_router(
    router_type: str, hidden_size: int, *, config: MoEConfig | None = None, **options: Any
) -> nn.Module:
    """A router of a kind in `ROUTERS`; options go to its class."""
    return _named(ROUTERS, router_type, "router_type")(
        hidden_size, config or MoEConfig(), **options
    )
