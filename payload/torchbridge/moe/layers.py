"""Mixture-of-experts layers: [..., d] -> [..., d]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge.moe.banks import Bank, FeedForwardBank, ModuleBank
from torchbridge.moe.config import MoEConfig
from torchbridge.moe.dispatch import DispatchResult, dropless, with_capacity
from torchbridge.moe.experts import EXPERTS
from torchbridge.moe.losses import LoadBalancer, balance, router_z_loss
from torchbridge.moe.parallel import ExpertParallelism
from torchbridge.moe.routers import (
    BalancingRouter,
    DynamicCapacityRouter,
    HashRouter,
    LearnedRouter,
    Routing,
    SwitchRouter,
    TopKRouter,
)


class MoELayer(nn.Module):
    """A router and the experts it selects.

    `path_taken` says how the experts of the last call were computed; `fallback` why that was not
    the device's best path, or None. With `config.expert_parallelism` this process holds only its
    share of the experts.
    """

    gated = False

    def __init__(
        self,
        config: MoEConfig,
        hidden_size: int,
        expert_hidden_size: int | None = None,
        *,
        expert_type: str = "feedforward",
        router: nn.Module | None = None,
    ) -> None:
        """Create the layer; `expert_hidden_size` defaults to 4 * hidden_size, `router` to top-k."""
        super().__init__()
        self.config = config
        self.hidden_size = hidden_size
        self.expert_hidden_size = expert_hidden_size or 4 * hidden_size
        self.router = router if router is not None else self._make_router()
        self.experts = self._make_experts(expert_type)
        self.balancer = LoadBalancer(config)
        self.path_taken: str | None = None
        self.fallback: str | None = None
        self.parallel: ExpertParallelism | None = None
        if config.expert_parallelism:
            self.parallel = ExpertParallelism(config.num_experts)
            self.experts.keep(self.parallel.placement.local_experts)
        self.register_buffer("computed", torch.zeros(config.num_experts, dtype=torch.int64), False)
        self.register_buffer("dropped", torch.zeros((), dtype=torch.int64), False)

    def _make_router(self) -> nn.Module:
        return TopKRouter(self.hidden_size, self.config)

    def _make_experts(self, expert_type: str) -> Bank:
        sizes = (self.hidden_size, self.expert_hidden_size, self.config)
        if expert_type == "feedforward":
            return FeedForwardBank(self.config.num_experts, *sizes, self.gated)
        if expert_type not in EXPERTS:
            raise ValueError(
                f"expert_type must be one of {', '.join(EXPERTS)}, got {expert_type!r}"
            )
        return ModuleBank(self.config.num_experts, lambda: EXPERTS[expert_type](*sizes))

    def forward(
        self,
        x: Tensor,
        expert_mask: Tensor | None = None,
        return_router_logits: bool = False,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """Return the output for x [..., d], or (output, aux) with `return_router_logits`.

        expert_mask: [E], or [..., E] with the leading shape of x; False excludes an expert; see
        `routers.usable`. aux: `load_balance_loss` and `router_z_loss`, weighted;
        `expert_utilization` [E], the computed assignments of each expert over T * k;
        `tokens_dropped`, the number of assignments not computed; `router_logits`.
        """
        tokens = x.reshape(-1, self.hidden_size)  # [T, d]
        if expert_mask is not None and expert_mask.dim() > 1:
            expert_mask = expert_mask.reshape(-1, self.config.num_experts)
        routing = self.router(tokens, expert_mask)
        result = self._dispatch(tokens, routing)
        self._record(result)
        output = result.output.reshape(x.shape)
        if not return_router_logits:
            return output
        return output, self._auxiliary(routing, result)

    def _dispatch(self, tokens: Tensor, routing: Routing) -> DispatchResult:
        if self.config.drop_tokens:
            return with_capacity(self.experts, tokens, routing, self.config)
        return dropless(self.experts, tokens, routing, self.config, self.parallel)

    @torch.no_grad()
    def _record(self, result: DispatchResult) -> None:
        self.path_taken = str(result.path)
        self.fallback = result.path.fallback
        self.computed += result.counts
        self.dropped += result.dropped

    def _auxiliary(self, routing: Routing, result: DispatchResult) -> dict[str, Tensor]:
        config, indices = self.config, routing["expert_indices"]
        balance_loss = self.balancer.loss(routing["probs"], indices)
        z_loss = router_z_loss(routing["logits"])
        return {
            "load_balance_loss": config.load_balance_loss_weight * balance_loss,
            "router_z_loss": config.router_z_loss_weight * z_loss,
            "expert_utilization": result.counts / max(1, indices.numel()),
            "tokens_dropped": result.dropped,
            "router_logits": routing["logits"],
        }

    def get_expert_utilization_stats(self) -> dict[str, float | list[float]]:
        """Return statistics since construction or `reset_expert_utilization`.

        `usage_rates`: each expert's share of the computed assignments; `expert_balance`: their
        entropy over ln E (1 = even); `expert_efficiency`: computed over all assignments.
        """
        computed, dropped = self.computed.tolist(), int(self.dropped)
        total = sum(computed)
        return {
            "usage_rates": [count / max(1, total) for count in computed],
            "expert_balance": balance(computed),
            "expert_efficiency": total / max(1, total + dropped),
        }

    def reset_expert_utilization(self) -> None:
        """Reset the counters to zero."""
        self.computed.zero_()
        self.dropped.zero_()


class SparseMoELayer(MoELayer):
    """Layer that uses a fraction `sparsity_level` of the experts per token, at least one."""

    def __init__(
        self, config: MoEConfig, *sizes: int | None, sparsity_level: float = 0.25, **options: Any
    ) -> None:
        if not 0 < sparsity_level <= 1:
            raise ValueError(f"sparsity_level must be in (0, 1], got {sparsity_level}")
        top_k = max(1, round(sparsity_level * config.num_experts))
        super().__init__(replace(config, top_k=top_k), *sizes, **options)


class SwitchTransformerMoE(MoELayer):
    """Layer that routes each token to one expert, weighted by its probability."""

    def __init__(self, config: MoEConfig, *sizes: int | None, **options: Any) -> None:
        config = replace(config, top_k=1, normalize_router_probs=False)
        super().__init__(config, *sizes, **options)

    def _make_router(self) -> nn.Module:
        return SwitchRouter(self.hidden_size, self.config)


class GLaMStyleMoE(MoELayer):
    """Layer that routes each token to two gated GELU feed-forward experts."""

    gated = True

    def __init__(self, config: MoEConfig, *sizes: int | None, **options: Any) -> None:
        config = replace(config, top_k=min(2, config.num_experts), activation="gelu")
        super().__init__(config, *sizes, **options)


class AdaptiveMoELayer(MoELayer):
    """Layer that balances the load by biases that change by `adaptation_rate` per step."""

    def __init__(
        self, config: MoEConfig, *sizes: int | None, adaptation_rate: float = 0.01, **options: Any
    ) -> None:
        self.adaptation_rate = adaptation_rate
        super().__init__(config, *sizes, **options)

    def _make_router(self) -> nn.Module:
        return BalancingRouter(self.hidden_size, self.config, self.adaptation_rate)

    def _record(self, result: DispatchResult) -> None:
        super()._record(result)
        if self.training and isinstance(self.router, BalancingRouter):
            self.router.adapt(result.counts)


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
    """Create a layer of a kind in `LAYERS`; options go to its constructor."""
    layer = _named(LAYERS, moe_type, "moe_type")
    return layer(config or MoEConfig(), hidden_size, expert_hidden_size, **options)


def create_moe(hidden_size: int, num_experts: int = 8, top_k: int = 2, **settings: Any) -> MoELayer:
    """Create a standard layer; further settings are fields of `MoEConfig`."""
    return MoELayer(MoEConfig(num_experts=num_experts, top_k=top_k, **settings), hidden_size)


def create_router(
    router_type: str, hidden_size: int, *, config: MoEConfig | None = None, **options: Any
) -> nn.Module:
    """Create a router of a kind in `ROUTERS`; options go to its constructor."""
    return _named(ROUTERS, router_type, "router_type")(
        hidden_size, config or MoEConfig(), **options
    )
